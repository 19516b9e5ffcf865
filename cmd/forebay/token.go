package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/auth"
)

type tokenCmd struct {
	Tenant  string        `help:"Tenant of the token." required:"" placeholder:"T"`
	Subject string        `help:"Subject: who it is for." required:"" placeholder:"S"`
	Scope   string        `help:"Names separated by spaces: publish, read, admin, platform. Without, all within the tenant." placeholder:"SCOPE"`
	Expires time.Duration `help:"How long it is good." default:"1h"`
	Data    string        `help:"Data folder with the development key, which is made if it is not there." default:".forebay" placeholder:"DIR"`
	Output  string        `help:"text or json." enum:"text,json" default:"text"`
}

func (c *tokenCmd) Run(e *env) error {
	switch {
	case !api.ValidName(c.Tenant):
		return usagef("--tenant %q is not a valid name", c.Tenant)
	case c.Subject == "":
		return usagef("--subject must not be empty")
	case c.Expires <= 0:
		return usagef("--expires must be above 0")
	}
	for _, scope := range strings.Fields(c.Scope) {
		if !slices.Contains(auth.Scopes(), scope) {
			return usagef("--scope: there is no scope %q; there are %s", scope, strings.Join(auth.Scopes(), ", "))
		}
	}
	dir, err := filepath.Abs(c.Data)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	key, err := auth.LoadOrCreateDevKey(dir)
	if err != nil {
		return err
	}
	expires := time.Now().Add(c.Expires)
	token, err := auth.SignDev(key, auth.Claims{Tenant: c.Tenant, Subject: c.Subject, Scope: c.Scope, Expires: expires})
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return printJSON(e.out, map[string]string{"token": token, "expires": expires.UTC().Format(time.RFC3339)})
	}
	_, err = fmt.Fprintln(e.out, token)
	return err
}
