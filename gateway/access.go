package gateway

import (
	"github.com/forebaymq/forebay/gateway/auth"
)

// authenticate finds out who sends the request, by its head alone.
func (rq *request) authenticate() error {
	token, err := auth.FromHeader(rq.Request().Header)
	if err != nil {
		return err
	}
	rq.principal, err = rq.s.o.Authenticator.Authenticate(rq.ctx, token)
	return err
}

// authorize asks whether the principal may do op on a resource of its tenant.
func (rq *request) authorize(op auth.Operation, kind auth.ResourceKind, name string) error {
	return rq.s.o.Authorizer.Authorize(rq.ctx, rq.principal, op, auth.Resource{Tenant: rq.principal.Tenant, Kind: kind, Name: name})
}
