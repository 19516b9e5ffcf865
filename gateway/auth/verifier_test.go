package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/jonboulle/clockwork"
	"go.uber.org/goleak"

	"github.com/forebaymq/forebay/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func publicPEM(t testing.TB, public crypto.PublicKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// keyring holds one private key of each kind, made once: RSA keys take long.
type keyring struct {
	rsa  *rsa.PrivateKey
	ec   map[string]*ecdsa.PrivateKey
	ed   ed25519.PrivateKey
	weak *rsa.PrivateKey
}

var newKeyring = sync.OnceValue(func() *keyring {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	k := &keyring{ec: map[string]*ecdsa.PrivateKey{}}
	var err error
	k.rsa, err = rsa.GenerateKey(rand.Reader, 2048)
	must(err)
	k.weak, err = rsa.GenerateKey(rand.Reader, 1024)
	must(err)
	for alg, curve := range map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()} {
		k.ec[alg], err = ecdsa.GenerateKey(curve, rand.Reader)
		must(err)
	}
	_, k.ed, err = ed25519.GenerateKey(rand.Reader)
	must(err)
	return k
})

func goodClaims(now time.Time) jwt.MapClaims {
	return jwt.MapClaims{"iss": "https://id.example", "aud": "forebay", "sub": "svc", "tenant": "acme", "exp": now.Add(time.Hour).Unix()}
}

func sign(t testing.TB, method jwt.SigningMethod, key any, claims jwt.MapClaims, header map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	maps.Copy(token.Header, header)
	s, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustKey(t testing.TB, public crypto.PublicKey, alg, kid string) Key {
	t.Helper()
	k, err := ParsePublicKey(publicPEM(t, public), alg, kid)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func verifier(t testing.TB, clock clockwork.Clock, keys KeySource) *TokenVerifier {
	t.Helper()
	v, err := NewVerifier(Options{Clock: clock, Issuers: []Issuer{{Name: "https://id.example", Audiences: []string{"forebay", "forebay-eu"}, Keys: keys}}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func refused(t *testing.T, name string, v *TokenVerifier, token string) {
	t.Helper()
	for range 2 { // the second time, nothing of it may have been remembered
		p, err := v.Authenticate(t.Context(), token)
		if api.CodeOf(err) != api.CodeUnauthenticated || p != nil {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		if err != nil && len(token) > 20 && strings.Contains(err.Error(), token[:20]) {
			t.Errorf("%s: the error repeats the token", name)
		}
	}
}

func TestEveryAlgorithm(t *testing.T) {
	ring := newKeyring()
	for alg, pair := range map[string]struct {
		private any
		public  crypto.PublicKey
	}{
		"RS256": {ring.rsa, ring.rsa.Public()}, "RS384": {ring.rsa, ring.rsa.Public()}, "RS512": {ring.rsa, ring.rsa.Public()},
		"PS256": {ring.rsa, ring.rsa.Public()}, "PS384": {ring.rsa, ring.rsa.Public()}, "PS512": {ring.rsa, ring.rsa.Public()},
		"ES256": {ring.ec["ES256"], ring.ec["ES256"].Public()}, "ES384": {ring.ec["ES384"], ring.ec["ES384"].Public()},
		"ES512": {ring.ec["ES512"], ring.ec["ES512"].Public()}, "EdDSA": {ring.ed, ring.ed.Public()},
	} {
		v := verifier(t, clockwork.NewFakeClockAt(start), StaticKeys{mustKey(t, pair.public, alg, "k1")})
		claims := goodClaims(start)
		claims["scope"] = " read  publish "
		token := sign(t, jwt.GetSigningMethod(alg), pair.private, claims, map[string]any{"kid": "k1"})
		for range 2 { // verified, then remembered
			p, err := v.Authenticate(t.Context(), token)
			if err != nil {
				t.Fatalf("%s: %v", alg, err)
			}
			if p.Tenant != "acme" || p.Subject != "svc" || p.Issuer != "https://id.example" || strings.Join(p.Scopes, ",") != "read,publish" ||
				!p.Expires.Equal(start.Add(time.Hour)) {
				t.Errorf("%s: %+v", alg, p)
			}
		}
		// One character of the signature, of the claims, of the header.
		for _, i := range []int{len(token) - 10, strings.Index(token, ".") + 5, 5} {
			bent := []byte(token)
			bent[i] = map[bool]byte{true: 'B', false: 'A'}[bent[i] == 'A']
			refused(t, alg+" bent", v, string(bent))
		}
	}
}

// The algorithm comes from the key. What the header says can only agree.
func TestAlgorithmConfusion(t *testing.T) {
	ring := newKeyring()
	clock := clockwork.NewFakeClockAt(start)
	public := publicPEM(t, ring.rsa.Public())
	der := x509.MarshalPKCS1PublicKey(&ring.rsa.PublicKey)
	rs := verifier(t, clock, StaticKeys{mustKey(t, ring.rsa.Public(), "", ""), mustKey(t, ring.ec["ES256"].Public(), "", "")})
	claims := goodClaims(start)

	none := sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims, nil)
	refused(t, "none", rs, none)
	refused(t, "none with signature", rs, none+"AAAA")
	for _, alg := range []string{"None", "NONE", "nOnE", ""} {
		head := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"` + alg + `","typ":"JWT"}`))
		refused(t, alg, rs, head+none[strings.Index(none, "."):])
	}
	for _, head := range []string{`{"typ":"JWT"}`, `{"alg":null}`, `{"alg":["RS256"]}`, `{"alg":5}`, `[]`, `null`, `{`} {
		refused(t, head, rs, base64.RawURLEncoding.EncodeToString([]byte(head))+none[strings.Index(none, "."):])
	}
	for name, secret := range map[string][]byte{"PEM": public, "PEM trimmed": []byte(strings.TrimSpace(string(public))), "DER": der, "empty": {}} {
		for _, method := range []jwt.SigningMethod{jwt.SigningMethodHS256, jwt.SigningMethodHS384, jwt.SigningMethodHS512} {
			refused(t, "public key as HMAC secret, "+name, rs, sign(t, method, secret, claims, nil))
		}
	}
	refused(t, "PS256 with an RS256 key", rs, sign(t, jwt.SigningMethodPS256, ring.rsa, claims, nil))
	refused(t, "RS512 with an RS256 key", rs, sign(t, jwt.SigningMethodRS512, ring.rsa, claims, nil))
	refused(t, "another EC key", rs, sign(t, jwt.SigningMethodES384, ring.ec["ES384"], claims, nil))
	if _, err := rs.Authenticate(t.Context(), sign(t, jwt.SigningMethodRS256, ring.rsa, claims, nil)); err != nil {
		t.Errorf("the key's own algorithm: %v", err)
	}

	// HMAC keys are for development verifiers alone, even where a source hands them out.
	hs := verifier(t, clock, sourceFunc(func(string) ([]Key, error) { return []Key{DevKey([]byte("secret"))}, nil }))
	refused(t, "HMAC key", hs, sign(t, jwt.SigningMethodHS256, []byte("secret"), claims, nil))
	refused(t, "zero key", verifier(t, clock, sourceFunc(func(string) ([]Key, error) { return []Key{{Algorithm: "HS256"}}, nil })),
		sign(t, jwt.SigningMethodHS256, []byte{}, claims, nil))
}

type sourceFunc func(kid string) ([]Key, error)

func (f sourceFunc) Keys(_ context.Context, kid string) ([]Key, error) { return f(kid) }

// A1 and the other claims.
func TestClaims(t *testing.T) {
	ring := newKeyring()
	v := verifier(t, clockwork.NewFakeClockAt(start), StaticKeys{mustKey(t, ring.ed.Public(), "", "")})
	at := func(d time.Duration) int64 { return start.Add(d).Unix() }
	absent := struct{}{}
	for _, c := range []struct {
		name  string
		claim string
		value any
		ok    bool
	}{
		{"aud in array", "aud", []string{"x", "forebay-eu"}, true},
		{"aud other", "aud", "forebay2", false},
		{"aud prefix", "aud", "fore", false},
		{"aud case", "aud", "Forebay", false},
		{"aud joined", "aud", "forebay forebay-eu", false},
		{"aud others", "aud", []string{"x", "y"}, false},
		{"aud empty", "aud", "", false},
		{"aud empty array", "aud", []string{}, false},
		{"aud array of empty", "aud", []string{""}, false},
		{"aud number", "aud", 5, false},
		{"aud null", "aud", nil, false},
		{"aud object", "aud", map[string]any{"forebay": true}, false},
		{"aud array with a number", "aud", []any{5, "forebay"}, false},
		{"aud nested", "aud", []any{[]string{"forebay"}}, false},
		{"aud missing", "aud", absent, false},
		{"iss other", "iss", "https://id.example/", false},
		{"iss missing", "iss", absent, false},
		{"iss array", "iss", []string{"https://id.example"}, false},
		{"exp missing", "exp", absent, false},
		{"exp null", "exp", nil, false},
		{"exp text", "exp", "9999999999", false},
		{"exp past", "exp", at(-31 * time.Second), false},
		{"exp at the leeway", "exp", at(-30 * time.Second), false},
		{"exp within leeway", "exp", at(-29 * time.Second), true},
		{"exp fraction", "exp", float64(at(5*time.Second)) + 0.5, true},
		{"exp zero", "exp", 0, false},
		{"exp negative", "exp", -1, false},
		{"exp huge", "exp", 1e300, false},
		{"exp milliseconds", "exp", at(time.Hour) * 1000, false},
		{"nbf past", "nbf", at(-time.Hour), true},
		{"nbf within leeway", "nbf", at(30 * time.Second), true},
		{"nbf future", "nbf", at(31 * time.Second), false},
		{"nbf text", "nbf", "0", false},
		{"tenant missing", "tenant", absent, false},
		{"tenant empty", "tenant", "", false},
		{"tenant path", "tenant", "../other", false},
		{"tenant reserved", "tenant", "__internal", false},
		{"tenant number", "tenant", 5, false},
		{"tenant array", "tenant", []string{"acme"}, false},
		{"tenant long", "tenant", strings.Repeat("a", 201), false},
		{"tenant longest", "tenant", strings.Repeat("a", 200), true},
		{"sub missing", "sub", absent, false},
		{"sub empty", "sub", "", false},
		{"sub number", "sub", 5, false},
		{"sub control", "sub", "a\nb", false},
		{"sub text", "sub", "user|é 1", true},
		{"scope array", "scope", []string{"read"}, false},
		{"scope number", "scope", 5, false},
		{"scope empty", "scope", "", true},
		{"unknown claim", "x", map[string]any{"y": 1}, true},
	} {
		claims := goodClaims(start)
		if c.value == absent {
			delete(claims, c.claim)
		} else {
			claims[c.claim] = c.value
		}
		token := sign(t, jwt.SigningMethodEdDSA, ring.ed, claims, nil)
		if !c.ok {
			refused(t, c.name, v, token)
		} else if _, err := v.Authenticate(t.Context(), token); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestTenantClaimByIssuer(t *testing.T) {
	ring := newKeyring()
	keys := StaticKeys{mustKey(t, ring.ed.Public(), "", "")}
	v, err := NewVerifier(Options{Clock: clockwork.NewFakeClockAt(start), Issuers: []Issuer{
		{Name: "a", Audiences: []string{"forebay"}, Keys: keys, TenantClaim: "https://x.example/org"},
		{Name: "b", Audiences: []string{"other"}, Keys: keys},
	}})
	if err != nil {
		t.Fatal(err)
	}
	claims := goodClaims(start)
	claims["iss"], claims["https://x.example/org"] = "a", "org-1"
	if p, err := v.Authenticate(t.Context(), sign(t, jwt.SigningMethodEdDSA, ring.ed, claims, nil)); err != nil || p.Tenant != "org-1" || p.Issuer != "a" {
		t.Errorf("%+v, %v", p, err)
	}
	claims["iss"] = "b" // whose audience is another
	refused(t, "audience of another issuer", v, sign(t, jwt.SigningMethodEdDSA, ring.ed, claims, nil))
}

// A remembered token still ends when it ends.
func TestRememberedTokens(t *testing.T) {
	ring := newKeyring()
	clock := clockwork.NewFakeClockAt(start)
	asked := 0
	key := mustKey(t, ring.ed.Public(), "", "")
	v := verifier(t, clock, sourceFunc(func(string) ([]Key, error) { asked++; return []Key{key}, nil }))
	claims := goodClaims(start)
	claims["nbf"] = start.Unix()
	token := sign(t, jwt.SigningMethodEdDSA, ring.ed, claims, nil)
	authenticate := func() error { _, err := v.Authenticate(t.Context(), token); return err }
	for range 10 {
		if err := authenticate(); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 1 {
		t.Errorf("the signature was checked %d times", asked)
	}
	clock.Advance(time.Hour + DefaultLeeway - time.Second)
	if err := authenticate(); err != nil {
		t.Errorf("just before the end: %v", err)
	}
	clock.Advance(time.Second)
	refused(t, "expired while remembered", v, token)

	// The clock of the machine was set back.
	back := clockwork.NewFakeClockAt(start)
	v = verifier(t, back, StaticKeys{key})
	if err := authenticate(); err != nil {
		t.Fatal(err)
	}
	if err := v.checkTimes(&verifiedToken{principal: &Principal{Expires: start.Add(time.Hour)}, notBefore: start.Add(time.Minute)}); err == nil {
		t.Error("a remembered token is accepted before its time")
	}

	// Forget makes a withdrawn key take effect.
	withdrawn := false
	v = verifier(t, back, sourceFunc(func(string) ([]Key, error) {
		if withdrawn {
			return nil, nil
		}
		return []Key{key}, nil
	}))
	if err := authenticate(); err != nil {
		t.Fatal(err)
	}
	withdrawn = true
	v.Forget()
	refused(t, "key withdrawn", v, token)

	// The memory is bounded.
	v, err := NewVerifier(Options{Clock: back, CacheEntries: 10, Development: true, Issuers: []Issuer{DevIssuer([]byte("k"))}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		token, err := SignDev([]byte("k"), Claims{Tenant: "t", Subject: "s", Expires: start.Add(time.Hour + time.Duration(i)*time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Authenticate(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	if n := v.verified.EstimatedSize(); n > 20 {
		t.Errorf("%d tokens remembered", n)
	}
}

// A2: what is no token costs next to nothing.
func TestHugeTokens(t *testing.T) {
	ring := newKeyring()
	v := verifier(t, clockwork.NewFakeClockAt(start), StaticKeys{mustKey(t, ring.rsa.Public(), "", "")})
	deep := base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("[", 9000)))
	for name, token := range map[string]string{
		"a million dots":  strings.Repeat(".", 1_000_000),
		"dots in bounds":  strings.Repeat(".", api.MaxTokenBytes),
		"a million bytes": strings.Repeat("a", 1_000_000),
		"empty":           "",
		"two dots":        "..",
		"four parts":      "a.b.c.d",
		"two parts":       "a.b",
		"deep":            deep + "." + deep[:4000] + ".x",
		"not base64":      "!!!.###.$$$",
		"too long":        "a." + strings.Repeat("b", api.MaxTokenBytes) + ".c",
	} {
		var err error
		allocated := testing.AllocsPerRun(1, func() { _, err = v.Authenticate(t.Context(), token) })
		if api.CodeOf(err) != api.CodeUnauthenticated || allocated > 100 {
			t.Errorf("%s: %v, %.0f allocations", name, err, allocated)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	key := []byte("secret")
	clock := clockwork.NewFakeClockAt(start)
	v, err := NewVerifier(Options{Clock: clock, CacheEntries: 4, Development: true, Issuers: []Issuer{DevIssuer(key)}})
	if err != nil {
		t.Fatal(err)
	}
	tenants := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	var wg sync.WaitGroup
	for _, tenant := range tenants {
		token, err := SignDev(key, Claims{Tenant: tenant, Subject: "s", Expires: start.Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for range 300 {
				if p, err := v.Authenticate(t.Context(), token); err != nil || p.Tenant != tenant {
					t.Errorf("%s: %+v, %v", tenant, p, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
