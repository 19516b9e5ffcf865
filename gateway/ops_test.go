package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/api"
)

// ops sends a request to the ops port.
func (n *node) ops(method, path string) *answer {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), method, "http://"+n.OpsAddr()+path, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	return n.send(req)
}

func TestHealthAndReadiness(t *testing.T) {
	n := start(t, nil)
	both := func(path string, status int, code string) {
		t.Helper()
		a := n.call("GET", path, "", header("Authorization", ""))
		o := n.ops("GET", path)
		if a.status != status || o.status != status || !strings.Contains(string(a.body), code) || !strings.Contains(string(o.body), code) {
			t.Errorf("%s: %d %s and %d %s, want %d %s", path, a.status, a.body, o.status, o.body, status, code)
		}
		if retry := o.header.Get("Retry-After"); (retry != "") != (status == 503) {
			t.Errorf("%s: Retry-After %q with %d", path, retry, status)
		}
	}
	both("/healthz", 200, "alive")
	both("/readyz", 200, "ready")
	n.f.mu.Lock()
	n.f.notReady = true
	n.f.mu.Unlock()
	both("/readyz", 503, "METADATA_UNAVAILABLE")
	n.f.mu.Lock()
	n.f.notReady = false
	n.f.mu.Unlock()
	n.f.failWith("Available", api.Errorf(api.CodeMetadataUnavailable, "no quorum"))
	both("/readyz", 503, "METADATA_UNAVAILABLE")
	both("/healthz", 200, "alive") // restarting a node brings no quorum back
	n.f.failWith("Available", nil)
	n.phase.Store(phaseDraining)
	both("/readyz", 503, "OVERLOADED")
	n.phase.Store(phaseFailed)
	both("/healthz", 500, "INTERNAL")
	both("/readyz", 500, "INTERNAL")
	n.phase.Store(phaseServing)
}

// A node that can do most of its work stays ready, and says what it cannot.
func TestReadyButDegraded(t *testing.T) {
	var reasons map[string]string
	n := start(t, func(o *Options) { o.Degraded = func() map[string]string { return reasons } })
	for want, r := range map[string]map[string]string{
		`{"status":"ready"}`: nil,
		`{"status":"ready","degraded":{"leases":"Redis says \"no\""}}`: {"leases": `Redis says "no"`},
	} {
		reasons = r
		for _, a := range []*answer{n.call("GET", "/readyz", "", header("Authorization", "")), n.ops("GET", "/readyz")} {
			if a.status != 200 || strings.TrimSpace(string(a.body)) != want {
				t.Errorf("%d %s, want %s", a.status, a.body, want)
			}
		}
		if a := n.ops("GET", "/healthz"); strings.Contains(string(a.body), "degraded") {
			t.Errorf("/healthz: %s", a.body)
		}
	}
}

func TestOpsPort(t *testing.T) {
	n := start(t, func(o *Options) {
		o.Version = "v9"
		o.DebugState = func() any { return map[string]int{"shards": 16} }
	})
	n.fill("orders", 2)
	n.call("GET", "/v1/nothing/"+long(50), "")
	n.call("GET", "/v1/topics/missing", "")
	body := string(n.ops("GET", "/metrics").ok(200, nil).body)
	for _, want := range []string{
		`forebay_gateway_requests_total{code="",method="POST",route="/v1/topics/:topic/records",status="2xx"} 2`,
		`forebay_gateway_requests_total{code="NOT_FOUND",method="GET",route="unmatched",status="4xx"} 1`,
		`forebay_gateway_requests_total{code="UNKNOWN_TOPIC",method="GET",route="/v1/topics/:topic",status="4xx"} 1`,
		`forebay_gateway_request_seconds_count{route="/v1/topics/:topic/records"} 2`,
		`forebay_gateway_request_body_bytes_total 54`,
		`forebay_gateway_requests_in_flight 0`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(body, "orders") || strings.Contains(body, tenantA) {
		t.Error("a topic or a tenant is a label")
	}
	var state struct {
		Version, Phase string
		Metadata       struct{ Revision int }
		State          struct{ Shards int }
	}
	n.ops("GET", "/debug/state").ok(200, &state)
	if state.Version != "v9" || state.Phase != "serving" || state.Metadata.Revision != 7 || state.State.Shards != 16 {
		t.Errorf("%+v", state)
	}
	if a := n.ops("GET", "/debug/pprof/goroutine?debug=1"); a.status != 200 {
		t.Errorf("pprof: %d", a.status)
	}
	if a := n.ops("GET", "/v1/topics"); a.status != 404 || !strings.Contains(string(a.body), "NOT_FOUND") {
		t.Errorf("the ops port serves the API: %d", a.status)
	}
	n.call("GET", "/metrics", "").problem(404, "NOT_FOUND")
	n.call("GET", "/debug/state", "").problem(404, "NOT_FOUND")
}

func TestDebugStateWithoutJSON(t *testing.T) {
	n := start(t, func(o *Options) { o.DebugState = func() any { return func() {} } })
	a := n.ops("GET", "/debug/state")
	var p problem
	if err := json.Unmarshal(a.body, &p); err != nil || a.status != 500 || p.Code != "INTERNAL" {
		t.Errorf("%d %s", a.status, a.body)
	}
}
