package ingest

import "github.com/forebaymq/forebay/api"

// budget bounds what is accepted and unanswered, for the node and for each tenant, in bytes. It is not safe for concurrent use.
type budget struct {
	max, maxTenant int64
	used           int64
	tenants        map[string]int64 // only those with something in flight
}

func newBudget(max, maxTenant int64) budget {
	return budget{max: max, maxTenant: maxTenant, tenants: map[string]int64{}}
}

// take books n bytes, or says at once why not.
func (b *budget) take(tenant string, n int64) (refusal, *api.Error) {
	t := b.tenants[tenant]
	switch {
	case t+n > b.maxTenant:
		e := api.Errorf(api.CodeQuotaExceeded, "the tenant has %d bytes in flight on this node, at most %d: slow down", t, b.maxTenant)
		e.RetryAfter = retryAfter
		return refusedTenant, e
	case b.used+n > b.max:
		e := api.Errorf(api.CodeOverloaded, "the node has %d bytes in flight, at most %d", b.used, b.max)
		e.RetryAfter = retryAfter
		return refusedNode, e
	}
	b.used += n
	b.tenants[tenant] = t + n
	return "", nil
}

// give returns n bytes.
func (b *budget) give(tenant string, n int64) {
	b.used -= n
	if t := b.tenants[tenant] - n; t > 0 {
		b.tenants[tenant] = t
	} else {
		delete(b.tenants, tenant)
	}
}
