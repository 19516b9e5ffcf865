package auth

import (
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/jonboulle/clockwork"

	"github.com/forebaymq/forebay/api"
)

func FuzzAuthenticate(f *testing.F) {
	key := []byte("secret")
	v, err := NewVerifier(Options{Clock: clockwork.NewFakeClockAt(start), Development: true, Issuers: []Issuer{DevIssuer(key)}})
	if err != nil {
		f.Fatal(err)
	}
	token, err := SignDev(key, Claims{Tenant: "t", Subject: "s", Scope: "read", Expires: start.Add(time.Hour)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token)
	for i := 0; i < len(token); i += 7 {
		f.Add(token[:i] + token[min(i+1, len(token)):])
		f.Add(token[:i])
	}
	f.Add("..")
	f.Add("e30.e30.")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := v.Authenticate(t.Context(), s)
		if err != nil && api.CodeOf(err) != api.CodeUnauthenticated {
			t.Fatal(err)
		}
		// Only the signed text itself passes: there is no second spelling of a token.
		if err == nil && (s != token || p.Tenant != "t") {
			t.Fatalf("%q was accepted as %+v", s, p)
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	ring := newKeyring()
	for name, entries := range map[string]int{"remembered": 0, "verified": -1} {
		b.Run(name, func(b *testing.B) {
			v, err := NewVerifier(Options{CacheEntries: entries, Clock: clockwork.NewFakeClockAt(start), Issuers: []Issuer{
				{Name: "https://id.example", Audiences: []string{"forebay"}, Keys: StaticKeys{mustKey(b, ring.rsa.Public(), "", "")}}}})
			if err != nil {
				b.Fatal(err)
			}
			token := sign(b, jwt.SigningMethodRS256, ring.rsa, goodClaims(start), nil)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Authenticate(b.Context(), token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
