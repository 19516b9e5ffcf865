package auth

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jonboulle/clockwork"
)

// Defaults and bounds of Options.
const (
	DefaultLeeway       = 30 * time.Second
	MaxLeeway           = 5 * time.Minute
	DefaultCacheEntries = 10_000
	DefaultTenantClaim  = "tenant"
)

// Issuer is one party whose tokens are accepted.
type Issuer struct {
	Name        string    // exact value of "iss"
	Audiences   []string  // "aud" must have one of them as an exact member; at least one
	TenantClaim string    // name of the claim that holds the tenant; "" = DefaultTenantClaim
	Keys        KeySource // never nil
}

// Options configure a TokenVerifier. The zero value of every field but Issuers is its default.
type Options struct {
	Issuers      []Issuer
	Leeway       time.Duration   // how far clocks may differ for "exp" and "nbf"; 0 = DefaultLeeway, negative = none, at most MaxLeeway
	CacheEntries int             // verified tokens remembered; 0 = DefaultCacheEntries, negative = none
	Development  bool            // accept HMAC keys
	Clock        clockwork.Clock // nil = the real one
}

// WithDefaults returns o with its defaults filled in.
func (o Options) WithDefaults() Options {
	switch {
	case o.Leeway == 0:
		o.Leeway = DefaultLeeway
	case o.Leeway < 0:
		o.Leeway = 0
	}
	if o.CacheEntries == 0 {
		o.CacheEntries = DefaultCacheEntries
	}
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	issuers := make([]Issuer, len(o.Issuers))
	for i, is := range o.Issuers {
		if is.TenantClaim == "" {
			is.TenantClaim = DefaultTenantClaim
		}
		issuers[i] = is
	}
	o.Issuers = issuers
	return o
}

// Validate reports every fault, by field.
func (o Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(o.Issuers) == 0 {
		bad("issuers: at least one is needed")
	}
	if o.Leeway > MaxLeeway {
		bad("leeway: at most %s", MaxLeeway)
	}
	names := map[string]bool{}
	for i, is := range o.Issuers {
		if is.Name == "" {
			bad("issuers[%d].name: must not be empty", i)
		}
		if names[is.Name] {
			bad("issuers[%d].name: %q is there twice", i, is.Name)
		}
		names[is.Name] = true
		if len(is.Audiences) == 0 {
			bad("issuers[%d].audiences: at least one is needed, or tokens made for other services would be accepted", i)
		}
		for j, aud := range is.Audiences {
			if aud == "" {
				bad("issuers[%d].audiences[%d]: must not be empty", i, j)
			}
		}
		static, isStatic := is.Keys.(StaticKeys)
		switch {
		case is.Keys == nil, isStatic && len(static) == 0:
			bad("issuers[%d].keys: at least one is needed", i)
		}
		for j, k := range static {
			if k.material == nil {
				bad("issuers[%d].keys[%d]: has no key", i, j)
			}
			if isHMAC(k.Algorithm) && !o.Development {
				bad("issuers[%d].keys[%d]: %s is for development only", i, j, k.Algorithm)
			}
		}
	}
	return errors.Join(errs...)
}

func isHMAC(algorithm string) bool { return strings.HasPrefix(algorithm, "HS") }
