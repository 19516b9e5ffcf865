package auth

import (
	"strings"
	"testing"
	"time"
)

func TestOptionsValidate(t *testing.T) {
	ring := newKeyring()
	keys := StaticKeys{mustKey(t, ring.ed.Public(), "", "")}
	good := Issuer{Name: "i", Audiences: []string{"a"}, Keys: keys}
	if _, err := NewVerifier(Options{Issuers: []Issuer{good}, Leeway: -1, CacheEntries: -1}); err != nil {
		t.Errorf("%v", err)
	}
	for name, c := range map[string]struct {
		opts   Options
		fields []string
	}{
		"none":            {Options{}, []string{"issuers:"}},
		"no audience":     {Options{Issuers: []Issuer{{Name: "i", Keys: keys}}}, []string{"issuers[0].audiences:"}},
		"empty audience":  {Options{Issuers: []Issuer{{Name: "i", Audiences: []string{"a", ""}, Keys: keys}}}, []string{"issuers[0].audiences[1]:"}},
		"twice":           {Options{Issuers: []Issuer{good, good}}, []string{"issuers[1].name:"}},
		"no keys":         {Options{Issuers: []Issuer{{Name: "i", Audiences: []string{"a"}, Keys: StaticKeys{}}}}, []string{"issuers[0].keys:"}},
		"zero key":        {Options{Issuers: []Issuer{{Name: "i", Audiences: []string{"a"}, Keys: StaticKeys{{}}}}}, []string{"issuers[0].keys[0]:"}},
		"HMAC":            {Options{Issuers: []Issuer{DevIssuer([]byte("k"))}}, []string{"issuers[0].keys[0]:"}},
		"HMAC, no secret": {Options{Development: true, Issuers: []Issuer{DevIssuer(nil)}}, []string{"issuers[0].keys[0]:"}},
		"all":             {Options{Leeway: time.Hour, Issuers: []Issuer{{}}}, []string{"leeway:", "issuers[0].name:", "issuers[0].audiences:", "issuers[0].keys:"}},
	} {
		_, err := NewVerifier(c.opts)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		for _, f := range c.fields {
			if !strings.Contains(err.Error(), f) {
				t.Errorf("%s: %q is not in: %v", name, f, err)
			}
		}
	}
}
