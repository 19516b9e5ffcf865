package auth

import (
	"context"
	"slices"

	"github.com/forebaymq/forebay/api"
)

// Operation is what a request does to a resource.
type Operation string

// The operations.
const (
	OpPublish  Operation = "publish"  // append records, start producer sessions
	OpRead     Operation = "read"     // replay, stream, look up offsets; lease, settle and commit positions
	OpDescribe Operation = "describe" // see configuration and state, list
	OpManage   Operation = "manage"   // create, change and delete
	OpPlatform Operation = "platform" // act on tenants themselves
)

// ResourceKind is a kind of thing that operations act on.
type ResourceKind string

// The kinds of resources.
const (
	KindTopic        ResourceKind = "topic"
	KindSubscription ResourceKind = "subscription"
	KindGroup        ResourceKind = "group"
	KindTenant       ResourceKind = "tenant"
)

// Resource names what an operation acts on.
type Resource struct {
	Tenant string // "" = the principal's own
	Kind   ResourceKind
	Name   string // "" = every resource of the kind (lists)
}

// Topic is the resource of a topic of the principal's tenant.
func Topic(name string) Resource { return Resource{Kind: KindTopic, Name: name} }

// Authorizer decides what a principal may do.
type Authorizer interface {
	// Authorize returns nil, or an *api.Error: FORBIDDEN with what is missing.
	Authorize(ctx context.Context, p *Principal, op Operation, r Resource) error
}

// Scopes that Forebay knows.
const (
	ScopePublish  = "publish"
	ScopeRead     = "read"
	ScopeAdmin    = "admin"
	ScopePlatform = "platform"
)

// TenantAuthorizer permits every operation within the principal's own tenant, as far as the token's scopes go:
//
//	no scope at all   publish, read, describe and manage
//	publish           publish and describe
//	read              read and describe
//	admin             publish, read, describe and manage
//	platform          platform, and nothing else; no other token has it
//
// Scopes add up. A token that names scopes, none of them known here, may do nothing: a misspelt restriction must not lift itself.
type TenantAuthorizer struct{}

var _ Authorizer = TenantAuthorizer{}

// Authorize implements Authorizer.
func (TenantAuthorizer) Authorize(_ context.Context, p *Principal, op Operation, r Resource) error {
	if op == OpPlatform {
		if !slices.Contains(p.Scopes, ScopePlatform) {
			return api.Errorf(api.CodeForbidden, "this needs a token with the scope %q", ScopePlatform)
		}
		return nil
	}
	if r.Tenant != "" && r.Tenant != p.Tenant {
		return api.Errorf(api.CodeForbidden, "the token belongs to another tenant")
	}
	if len(p.Scopes) == 0 {
		return nil
	}
	for _, scope := range p.Scopes {
		if permits(scope, op) {
			return nil
		}
	}
	return api.Errorf(api.CodeForbidden, "the token's scopes do not permit %s; it needs the scope %q or %q", op, scopeFor(op), ScopeAdmin)
}

func permits(scope string, op Operation) bool {
	switch scope {
	case ScopeAdmin:
		return true
	case ScopePublish:
		return op == OpPublish || op == OpDescribe
	case ScopeRead:
		return op == OpRead || op == OpDescribe
	default:
		return false
	}
}

func scopeFor(op Operation) string {
	switch op {
	case OpPublish:
		return ScopePublish
	case OpRead, OpDescribe:
		return ScopeRead
	default:
		return ScopeAdmin
	}
}
