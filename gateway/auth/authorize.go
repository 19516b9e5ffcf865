package auth

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/forebaymq/forebay/api"
)

// Operation is what a request does to a resource.
type Operation string

// The operations.
const (
	Publish   Operation = "publish"   // append records, start producer sessions
	Read      Operation = "read"      // replay, stream, look up offsets
	Consume   Operation = "consume"   // work on a subscription: lease, settle, look at and seek; list, redrive and discard dead letters. With a group: join, poll, commit, seek, leave
	Describe  Operation = "describe"  // see configuration and state, list
	Configure Operation = "configure" // create, change and delete
	Platform  Operation = "platform"  // act on tenants themselves
)

// ResourceKind is a kind of thing that operations act on.
type ResourceKind string

// The kinds of resources.
const (
	Topic        ResourceKind = "topic"
	Subscription ResourceKind = "subscription"
	Group        ResourceKind = "group"
	Producer     ResourceKind = "producer"
	Tenant       ResourceKind = "tenant"
)

// Resource names what an operation acts on.
type Resource struct {
	Tenant string // "" = the principal's own
	Kind   ResourceKind
	Name   string // "" = every resource of the kind (lists). A subscription is named topic/subscription
}

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

// Scopes gives them all, the narrowest first.
func Scopes() []string { return []string{ScopePublish, ScopeRead, ScopeAdmin, ScopePlatform} }

// TenantAuthorizer permits every operation within the principal's own tenant, as far as the token's scopes go:
//
//	no scope at all   publish, read, consume, describe and configure
//	publish           publish and describe
//	read              read, consume and describe; that of subscriptions and groups includes their progress: who reads with them also settles,
//	                  commits, seeks, and has members leave
//	admin             publish, read, consume, describe and configure
//	platform          platform, and nothing else; no other token has it
//
// Scopes add up. A token that names scopes, none of them known here, may do nothing: a misspelt restriction must not lift itself, and an empty one permits nothing.
type TenantAuthorizer struct{}

var _ Authorizer = TenantAuthorizer{}

// Authorize implements Authorizer.
func (TenantAuthorizer) Authorize(_ context.Context, p *Principal, op Operation, r Resource) error {
	if op == Platform {
		if !slices.Contains(p.Scopes, ScopePlatform) {
			return api.Errorf(api.CodeForbidden, "this needs a token with the scope %q", ScopePlatform)
		}
		return nil
	}
	if r.Tenant != "" && r.Tenant != p.Tenant {
		return api.Errorf(api.CodeForbidden, "the token belongs to another tenant")
	}
	if p.Scopes == nil {
		return nil
	}
	for _, scope := range p.Scopes {
		if permits(scope, op) {
			return nil
		}
	}
	var able []string
	for _, scope := range Scopes() {
		if permits(scope, op) {
			able = append(able, strconv.Quote(scope))
		}
	}
	return api.Errorf(api.CodeForbidden, "the token's scopes do not permit %s; it needs the scope %s", op, strings.Join(able, " or "))
}

func permits(scope string, op Operation) bool {
	switch scope {
	case ScopeAdmin:
		return true
	case ScopePublish:
		return op == Publish || op == Describe
	case ScopeRead:
		return op == Read || op == Consume || op == Describe
	default:
		return false
	}
}
