package gateway

import (
	"testing"

	"github.com/forebaymq/forebay/api"
)

func TestDeleteTopic(t *testing.T) {
	n := start(t, nil)
	n.call("DELETE", "/v1/topics/orders", "").problem(404, "UNKNOWN_TOPIC")
	n.f.topic("orders", nil)
	n.call("DELETE", "/v1/topics/orders", "", token(tenantB)).problem(404, "UNKNOWN_TOPIC")
	n.call("DELETE", "/v1/topics/orders", "", token(tenantA+"/publish")).problem(403, "FORBIDDEN")
	n.call("DELETE", "/v1/topics/orders?force=1", "").problem(400, "INVALID_REQUEST")
	a := n.call("DELETE", "/v1/topics/orders", "").ok(204, nil)
	if len(a.body) != 0 || a.header.Get("X-Request-Id") == "" {
		t.Errorf("204 with body %q, headers %v", a.body, a.header)
	}
	n.call("GET", "/v1/topics/orders", "").problem(404, "UNKNOWN_TOPIC")
	n.f.failWith("DeleteTopic", api.Errorf(api.CodeOutcomeUnknown, "the deadline came first"))
	n.call("DELETE", "/v1/topics/orders", "").problem(504, "OUTCOME_UNKNOWN")
}
