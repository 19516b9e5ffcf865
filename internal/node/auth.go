package node

import (
	"fmt"
	"os"

	"github.com/jonboulle/clockwork"

	"github.com/forebaymq/forebay/gateway/auth"
)

type authentication struct {
	authenticator auth.Authenticator
	authorizer    auth.Authorizer
}

// newAuthentication reads the keys and makes the verifier of tokens.
func newAuthentication(a Auth, clock clockwork.Clock) (authentication, error) {
	o := auth.Options{Clock: clock, Development: len(a.DevKey) > 0}
	if len(a.DevKey) > 0 {
		o.Issuers = append(o.Issuers, auth.DevIssuer(a.DevKey))
	}
	if len(a.JWTKeyFiles) > 0 {
		issuer := auth.Issuer{Name: a.JWTIssuer, Audiences: a.JWTAudience, TenantClaim: a.TenantClaim}
		var keys auth.StaticKeys
		for _, path := range a.JWTKeyFiles {
			pem, err := os.ReadFile(path)
			if err != nil {
				return authentication{}, fmt.Errorf("read token key: %w", err)
			}
			key, err := auth.ParsePublicKey(pem, "", "")
			if err != nil {
				return authentication{}, fmt.Errorf("token key %s: %w", path, err)
			}
			keys = append(keys, key)
		}
		issuer.Keys = keys
		o.Issuers = append(o.Issuers, issuer)
	}
	v, err := auth.NewVerifier(o)
	if err != nil {
		return authentication{}, err
	}
	return authentication{authenticator: v, authorizer: auth.TenantAuthorizer{}}, nil
}
