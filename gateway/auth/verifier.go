package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
	"github.com/maypok86/otter/v2"

	"github.com/forebaymq/forebay/api"
)

// TokenVerifier is the Authenticator for JWTs.
type TokenVerifier struct {
	opts    Options
	parser  *jwt.Parser
	issuers map[string]*issuer
	// verified remembers tokens whose signature and claims have been checked, by SHA-256 of the token: a signature costs more than all
	// else of a small request. nil = off.
	verified *otter.Cache[[sha256.Size]byte, *verifiedToken]
}

type issuer struct {
	Issuer
	validator *jwt.Validator
}

// verifiedToken is what does not change about a token. Its times are checked at each use.
type verifiedToken struct {
	principal *Principal
	notBefore time.Time // zero = none
}

var _ Authenticator = (*TokenVerifier)(nil)

// NewVerifier makes a TokenVerifier, or reports what is wrong with o.
func NewVerifier(o Options) (*TokenVerifier, error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("configure authentication: %w", err)
	}
	v := &TokenVerifier{
		opts:    o,
		parser:  jwt.NewParser(jwt.WithoutClaimsValidation(), jwt.WithStrictDecoding()),
		issuers: map[string]*issuer{},
	}
	for _, is := range o.Issuers {
		v.issuers[is.Name] = &issuer{Issuer: is, validator: jwt.NewValidator(
			jwt.WithIssuer(is.Name),
			jwt.WithAudience(is.Audiences...),
			jwt.WithExpirationRequired(),
			jwt.WithLeeway(o.Leeway),
			jwt.WithTimeFunc(o.Clock.Now),
		)}
	}
	if o.CacheEntries > 0 {
		cache, err := otter.New(&otter.Options[[sha256.Size]byte, *verifiedToken]{
			MaximumSize: o.CacheEntries,
			// Maintenance runs where it is due: this cache has no callbacks that could wait for it, and no goroutine to stop.
			Executor: func(task func()) { task() },
		})
		if err != nil {
			return nil, fmt.Errorf("make the cache of tokens: %w", err)
		}
		v.verified = cache
	}
	return v, nil
}

// Authenticate implements Authenticator.
func (v *TokenVerifier) Authenticate(ctx context.Context, token string) (*Principal, error) {
	// Before anything is decoded: whatever is done below is bounded by these.
	if len(token) > api.MaxTokenBytes {
		return nil, unauthenticated("the token is longer than %d bytes", api.MaxTokenBytes)
	}
	if strings.Count(token, ".") != 2 {
		return nil, unauthenticated("the token is not a signed JWT")
	}
	var sum [sha256.Size]byte
	if v.verified != nil {
		sum = sha256.Sum256([]byte(token))
		if t, ok := v.verified.GetIfPresent(sum); ok {
			if err := v.checkTimes(t); err != nil {
				v.verified.Invalidate(sum)
				return nil, err
			}
			return t.principal, nil
		}
	}
	t, err := v.verify(ctx, token)
	if err != nil {
		return nil, err
	}
	if v.verified != nil {
		v.verified.Set(sum, t)
	}
	return t.principal, nil
}

// Forget drops every remembered token, so that each is verified anew: for a KeySource that has taken a key away.
func (v *TokenVerifier) Forget() {
	if v.verified != nil {
		v.verified.InvalidateAll()
	}
}

func (v *TokenVerifier) checkTimes(t *verifiedToken) error {
	now := v.opts.Clock.Now()
	if !now.Before(t.principal.Expires.Add(v.opts.Leeway)) {
		return errExpired()
	}
	if !t.notBefore.IsZero() && now.Before(t.notBefore.Add(-v.opts.Leeway)) {
		return errNotYet()
	}
	return nil
}

func errExpired() error { return unauthenticated("the token has expired; get a new one") }
func errNotYet() error  { return unauthenticated("the token is not valid yet; check the clocks") }

func (v *TokenVerifier) verify(ctx context.Context, token string) (*verifiedToken, error) {
	claims := jwt.MapClaims{}
	var from *issuer
	_, err := v.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) {
		var err error
		from, err = v.issuerOf(claims)
		if err != nil {
			return nil, err
		}
		return v.keysFor(ctx, from, t)
	})
	if err != nil {
		return nil, tokenFault(err)
	}
	if err := from.validator.Validate(claims); err != nil {
		return nil, tokenFault(err)
	}
	return v.principal(from, claims)
}

func (v *TokenVerifier) issuerOf(claims jwt.MapClaims) (*issuer, error) {
	name, _ := claims["iss"].(string)
	is, ok := v.issuers[name]
	if !ok {
		return nil, unauthenticated("the token's issuer is not accepted here")
	}
	return is, nil
}

// keysFor gives the keys to try for t: those of the issuer whose own algorithm the token names.
func (v *TokenVerifier) keysFor(ctx context.Context, is *issuer, t *jwt.Token) (any, error) {
	if _, ok := t.Header["crit"]; ok { // RFC 7515, 4.1.11: extensions that must be understood; none is
		return nil, unauthenticated("the token needs extensions that are not supported")
	}
	kid := ""
	if value, ok := t.Header["kid"]; ok {
		if kid, ok = value.(string); !ok {
			return nil, unauthenticated("the token's kid is not a string")
		}
	}
	keys, err := is.Keys.Keys(ctx, kid)
	if err != nil {
		return nil, err
	}
	set := jwt.VerificationKeySet{}
	for _, k := range keys {
		if k.material != nil && k.Algorithm == t.Method.Alg() && (v.opts.Development || !isHMAC(k.Algorithm)) {
			set.Keys = append(set.Keys, k.material)
		}
	}
	if len(set.Keys) == 0 {
		return nil, unauthenticated("the token is signed with a key or an algorithm that is not accepted here")
	}
	return set, nil
}

// maxExpiry bounds "exp" to what a time can hold everywhere: about the year 5138, in Unix seconds.
const maxExpiry = 1e11

func (v *TokenVerifier) principal(is *issuer, claims jwt.MapClaims) (*verifiedToken, error) {
	exp, err := claims.GetExpirationTime()
	if err != nil || exp == nil || exp.Unix() > maxExpiry || exp.Unix() < 0 {
		return nil, unauthenticated("the token's exp is not a time")
	}
	t := &verifiedToken{principal: &Principal{Issuer: is.Name, Expires: exp.Time}}
	nbf, err := claims.GetNotBefore()
	if err != nil {
		return nil, unauthenticated("the token's nbf is not a time")
	}
	if nbf != nil {
		t.notBefore = nbf.Time
	}
	tenant, _ := claims[is.TenantClaim].(string)
	if !api.ValidName(tenant) {
		return nil, unauthenticated("the token's claim %q must hold the name of a tenant", is.TenantClaim)
	}
	t.principal.Tenant = tenant
	subject, _ := claims["sub"].(string)
	if !validSubject(subject) {
		return nil, unauthenticated("the token needs a sub of 1 to %d bytes of printable text", maxSubjectBytes)
	}
	t.principal.Subject = subject
	if value, ok := claims["scope"]; ok {
		scope, ok := value.(string)
		if !ok {
			return nil, unauthenticated("the token's scope must be one string of names separated by spaces")
		}
		t.principal.Scopes = append([]string{}, strings.Fields(scope)...) // never nil: a claim that grants nothing is not the absence of one
	}
	return t, nil
}

const maxSubjectBytes = 512

func validSubject(s string) bool {
	if s == "" || len(s) > maxSubjectBytes || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// tokenFault names what is wrong with a token, without its contents.
func tokenFault(err error) error {
	var ours *api.Error
	if errors.As(err, &ours) {
		return ours
	}
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return errExpired()
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return errNotYet()
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return unauthenticated("the token's signature does not match")
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return unauthenticated("the token was made for another audience")
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return unauthenticated("the token needs the claims exp and aud")
	case errors.Is(err, jwt.ErrTokenUnverifiable):
		return unauthenticated("the token is signed with a key or an algorithm that is not accepted here")
	default:
		return unauthenticated("the token is not a valid JWT")
	}
}
