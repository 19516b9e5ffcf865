package auth

import (
	"strings"
	"testing"

	"github.com/forebaymq/forebay/api"
)

func TestTenantAuthorizer(t *testing.T) {
	all := []Operation{Publish, Read, Consume, Describe, Configure, Platform}
	for scopes, want := range map[string][]Operation{
		"":                     {Publish, Read, Consume, Describe, Configure},
		"publish":              {Publish, Describe},
		"read":                 {Read, Consume, Describe},
		"read publish":         {Publish, Read, Consume, Describe},
		"admin":                {Publish, Read, Consume, Describe, Configure},
		"platform":             {Platform},
		"platform admin":       {Publish, Read, Consume, Describe, Configure, Platform},
		"pubish":               {},
		"openid profile":       {},
		"openid read":          {Read, Consume, Describe},
		"ADMIN publish:orders": {},
	} {
		p := &Principal{Tenant: "acme", Subject: "s", Scopes: strings.Fields(scopes)}
		if scopes == "" {
			p.Scopes = nil // no such claim; an empty one is below
		}
		allowed := map[Operation]bool{}
		for _, op := range want {
			allowed[op] = true
		}
		for _, op := range all {
			err := TenantAuthorizer{}.Authorize(t.Context(), p, op, Resource{Kind: Topic, Name: "orders"})
			if (err == nil) != allowed[op] || err != nil && api.CodeOf(err) != api.CodeForbidden {
				t.Errorf("scopes %q, %s: %v", scopes, op, err)
			}
			if op == Platform {
				continue
			}
			for tenant, own := range map[string]bool{"acme": true, "acm": false, "Acme": false} {
				err := TenantAuthorizer{}.Authorize(t.Context(), p, op, Resource{Tenant: tenant, Kind: Topic, Name: "orders"})
				if (err == nil) != (own && allowed[op]) {
					t.Errorf("scopes %q, %s, tenant %q: %v", scopes, op, tenant, err)
				}
			}
		}
	}
}

// A claim that grants nothing is not the absence of one.
func TestEmptyScopePermitsNothing(t *testing.T) {
	for _, op := range []Operation{Publish, Read, Consume, Describe, Configure, Platform} {
		p := &Principal{Tenant: "acme", Subject: "s", Scopes: []string{}}
		if err := (TenantAuthorizer{}).Authorize(t.Context(), p, op, Resource{Kind: Topic, Name: "orders"}); api.CodeOf(err) != api.CodeForbidden {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// TestRefusalNamesEveryScopeThatWouldDo, each once.
func TestRefusalNamesEveryScopeThatWouldDo(t *testing.T) {
	p := &Principal{Tenant: "acme", Subject: "s", Scopes: []string{}}
	for op, want := range map[Operation]string{
		Publish: `it needs the scope "publish" or "admin"`, Read: `it needs the scope "read" or "admin"`, Consume: `it needs the scope "read" or "admin"`,
		Describe: `it needs the scope "publish" or "read" or "admin"`, Configure: `it needs the scope "admin"`, Platform: `a token with the scope "platform"`,
	} {
		err := TenantAuthorizer{}.Authorize(t.Context(), p, op, Resource{Kind: Group, Name: "g"})
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", op, err, want)
		}
	}
}
