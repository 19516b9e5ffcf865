package auth

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/forebaymq/forebay/api"
)

// Principal is who a verified token speaks for. Read only.
type Principal struct {
	Tenant  string
	Issuer  string
	Subject string
	Scopes  []string  // of the claim "scope"; nil: no such claim, not restricted; empty: nothing is permitted
	Expires time.Time // when the token ends
}

// Authenticator verifies tokens.
type Authenticator interface {
	// Authenticate returns who token speaks for, or an *api.Error: UNAUTHENTICATED, whose text says which requirement is not met and
	// never repeats the token.
	Authenticate(ctx context.Context, token string) (*Principal, error)
}

// Challenge is the value of WWW-Authenticate on a 401.
const Challenge = `Bearer realm="forebay"`

func unauthenticated(format string, args ...any) *api.Error {
	return api.Errorf(api.CodeUnauthenticated, format, args...)
}

// FromHeader takes the token out of the one Authorization header: the scheme Bearer in any case, one or more spaces, the token. Code:
// UNAUTHENTICATED, also for a token longer than api.MaxTokenBytes.
func FromHeader(h http.Header) (token string, err error) {
	values := h["Authorization"]
	switch {
	case len(values) == 0:
		return "", unauthenticated("send a token in the header Authorization: Bearer <JWT>")
	case len(values) > 1:
		return "", unauthenticated("the request has %d Authorization headers; send one", len(values))
	}
	const scheme = "Bearer "
	value := values[0]
	if len(value) < len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme) {
		return "", unauthenticated("the Authorization header must be: Bearer <JWT>")
	}
	token = strings.Trim(value[len(scheme):], " ")
	switch {
	case len(token) > api.MaxTokenBytes:
		return "", unauthenticated("the token is longer than %d bytes", api.MaxTokenBytes)
	case token == "" || strings.ContainsAny(token, " \t,"):
		return "", unauthenticated("the Authorization header must be: Bearer <JWT>")
	}
	return token, nil
}
