package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/jonboulle/clockwork"

	"github.com/forebaymq/forebay/api"
)

func TestKeyIDs(t *testing.T) {
	ring := newKeyring()
	clock := clockwork.NewFakeClockAt(start)
	other, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	named := mustKey(t, ring.ed.Public(), "", "k1")
	foreign := mustKey(t, other, "", "k2")
	unnamed := mustKey(t, ring.ed.Public(), "", "")
	for name, c := range map[string]struct {
		keys   StaticKeys
		header map[string]any
		ok     bool
	}{
		"by kid":                  {StaticKeys{foreign, named}, map[string]any{"kid": "k1"}, true},
		"no kid, several keys":    {StaticKeys{foreign, named}, nil, true},
		"unknown kid":             {StaticKeys{foreign, named}, map[string]any{"kid": "k3"}, false},
		"kid of another key":      {StaticKeys{foreign, named}, map[string]any{"kid": "k2"}, false},
		"key without a kid":       {StaticKeys{foreign, unnamed}, map[string]any{"kid": "k3"}, true},
		"kid goes before unnamed": {StaticKeys{foreign, unnamed}, map[string]any{"kid": "k2"}, false},
		"kid not a string":        {StaticKeys{named}, map[string]any{"kid": 5}, false},
		"kid null":                {StaticKeys{named}, map[string]any{"kid": nil}, false},
		"crit":                    {StaticKeys{named}, map[string]any{"kid": "k1", "crit": []string{"b64"}, "b64": false}, false},
		"embedded key":            {StaticKeys{foreign}, map[string]any{"jwk": map[string]any{"kty": "OKP"}, "x5u": "https://evil.example"}, false},
	} {
		v := verifier(t, clock, c.keys)
		token := sign(t, jwt.SigningMethodEdDSA, ring.ed, goodClaims(start), c.header)
		if c.ok {
			if _, err := v.Authenticate(t.Context(), token); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else {
			refused(t, name, v, token)
		}
	}
	// An error of the source that clients may see passes; another does not show.
	gone := api.Errorf(api.CodeOverloaded, "keys are being fetched")
	for _, c := range []struct {
		err  error
		code api.Code
	}{{gone, api.CodeOverloaded}, {errors.New("dial 10.0.0.7"), api.CodeUnauthenticated}} {
		v := verifier(t, clock, sourceFunc(func(string) ([]Key, error) { return nil, c.err }))
		_, err := v.Authenticate(t.Context(), sign(t, jwt.SigningMethodEdDSA, ring.ed, goodClaims(start), nil))
		if api.CodeOf(err) != c.code || strings.Contains(err.Error(), "10.0.0.7") {
			t.Errorf("%v: %v", c.err, err)
		}
	}
}

func TestParsePublicKey(t *testing.T) {
	ring := newKeyring()
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(ring.ed)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	for name, c := range map[string]struct {
		pem  []byte
		alg  string
		want string
	}{
		"RSA":         {publicPEM(t, ring.rsa.Public()), "", "RS256"},
		"RSA PS":      {publicPEM(t, ring.rsa.Public()), "PS384", "PS384"},
		"RSA PKCS1":   {block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&ring.rsa.PublicKey)), "", "RS256"},
		"P-256":       {publicPEM(t, ring.ec["ES256"].Public()), "", "ES256"},
		"P-384":       {publicPEM(t, ring.ec["ES384"].Public()), "", "ES384"},
		"P-521":       {publicPEM(t, ring.ec["ES512"].Public()), "", "ES512"},
		"Ed25519":     {publicPEM(t, ring.ed.Public()), "", "EdDSA"},
		"weak RSA":    {publicPEM(t, ring.weak.Public()), "", ""},
		"RSA HMAC":    {publicPEM(t, ring.rsa.Public()), "HS256", ""},
		"RSA none":    {publicPEM(t, ring.rsa.Public()), "none", ""},
		"RSA ES":      {publicPEM(t, ring.rsa.Public()), "ES256", ""},
		"EC of other": {publicPEM(t, ring.ec["ES256"].Public()), "ES384", ""},
		"P-224":       {publicPEM(t, p224.Public()), "", ""},
		"private":     {block("PRIVATE KEY", private), "", ""},
		"broken":      {block("PUBLIC KEY", []byte("x")), "", ""},
		"text":        {[]byte("not a key"), "", ""},
		"empty":       {nil, "", ""},
	} {
		k, err := ParsePublicKey(c.pem, c.alg, "kid")
		if k.Algorithm != c.want || (err == nil) != (c.want != "") || err == nil && k.ID != "kid" {
			t.Errorf("%s: %+v, %v", name, k, err)
		}
	}
}
