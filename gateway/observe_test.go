package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/api"
)

func TestRequestIDs(t *testing.T) {
	n := start(t, nil)
	seen := map[string]bool{}
	for _, sent := range []string{"", "my-id 1", long(128), long(129), "tab\tid", "ümlaut"} {
		a := n.call("GET", "/healthz", "", func(r *http.Request) {
			if sent != "" {
				r.Header["X-Request-Id"] = []string{sent}
			}
		})
		got := a.header.Get("X-Request-Id")
		if saneRequestID(sent) != (got == sent) {
			t.Errorf("%q is answered as %q", sent, got)
		}
		if got != sent {
			if _, err := ulid.ParseStrict(got); err != nil || seen[got] {
				t.Errorf("%q: %v, seen %v", got, err, seen[got])
			}
			seen[got] = true
		}
	}
	for _, bad := range []string{"", "\x7f", "a\nb", " a", "a ", "\x00"} {
		if saneRequestID(bad) {
			t.Errorf("%q is echoed", bad)
		}
	}
	ids := newRequestIDs(n.o.Clock, n.o.Random)
	for range 1000 {
		id := ids.next()
		if seen[id] {
			t.Fatalf("%s twice", id)
		}
		seen[id] = true
	}
}

func TestPanicIsAProblem(t *testing.T) {
	n := start(t, nil)
	n.f.topic("orders", nil)
	n.f.onCall("Append", func() { panic("index out of range: secret") })
	a := n.call("POST", "/v1/topics/orders/records", `{"records":[{"text":"a"}]}`)
	p := a.problem(500, "INTERNAL")
	if strings.Contains(string(a.body), "secret") {
		t.Errorf("the panic is shown: %s", a.body)
	}
	log := n.log.String()
	if strings.Count(log, "secret") != 1 || !strings.Contains(log, "publish.go") || !strings.Contains(log, p.RequestID) {
		t.Errorf("the panic is not in the log once with its stack: %s", log)
	}
	if n.bodies.used.Load() != 0 {
		t.Error("the body is still counted")
	}
	n.f.onCall("Append", nil)
	n.call("POST", "/v1/topics/orders/records", `{"records":[{"text":"a"}]}`).ok(200, nil)
}

func TestUnknownPathsAndMethods(t *testing.T) {
	n := start(t, nil)
	for _, path := range []string{"/", "/v1", "/v2/topics", "/v1/topics/a/nothing", "/favicon.ico"} {
		n.call("GET", path, "").problem(404, "NOT_FOUND")
	}
	for _, c := range []struct{ method, path, allow string }{
		{"POST", "/v1/topics", "GET"},
		{"PATCH", "/v1/topics/a", "DELETE, GET, PUT"},
		{"GET", "/v1/records", "POST"},
		{"DELETE", "/v1/producers/p", "GET, POST"},
		{"BREW", "/healthz", "GET"},
	} {
		a := n.call(c.method, c.path, "")
		a.problem(405, "METHOD_NOT_ALLOWED")
		for _, m := range strings.Split(c.allow, ", ") {
			if !strings.Contains(a.header.Get("Allow"), m) {
				t.Errorf("%s %s: Allow %q, want %s", c.method, c.path, a.header.Get("Allow"), c.allow)
			}
		}
	}
}

func TestLogHasNoSecrets(t *testing.T) {
	n := start(t, nil)
	n.f.topic("orders", nil)
	n.call("POST", "/v1/topics/orders/records", `{"records":[{"key":"very-private","text":"payload-text"}]}`, token(tenantA+"/publish")).ok(200, nil)
	n.call("POST", "/v1/topics/orders/records", `{"records":[{"payload-text":"very-private"}]}`).problem(400, "INVALID_REQUEST")
	n.call("GET", "/v1/topics?cursor=very-private", "", token("bad-token-text")).problem(401, "UNAUTHENTICATED")
	n.f.failWith("Append", fmt.Errorf("inner fault"))
	n.call("POST", "/v1/topics/orders/records", `{"records":[{"text":"payload-text"}]}`).problem(500, "INTERNAL")
	log := n.log.String()
	for _, secret := range []string{"very-private", "payload-text", "bad-token-text", tenantA + "/publish"} {
		if strings.Contains(log, secret) {
			t.Errorf("%s is in the log", secret)
		}
	}
	for _, want := range []string{"level=DEBUG", "level=INFO", "level=ERROR", "inner fault", "tenant=" + tenantA, "code=INVALID_REQUEST"} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in the log", want)
		}
	}
}

func TestRetryAfterOfAQuota(t *testing.T) {
	n := start(t, nil)
	n.f.topic("orders", nil)
	e := api.Errorf(api.CodeQuotaExceeded, "records per second")
	e.RetryAfter = 2500e6
	n.f.failWith("Append", e.With("limit", 10))
	a := n.call("POST", "/v1/topics/orders/records", `{"records":[{"text":"a"}]}`)
	a.problem(429, "QUOTA_EXCEEDED")
	var doc map[string]any
	if err := json.Unmarshal(a.body, &doc); err != nil || doc["limit"] != 10.0 || a.header.Get("Retry-After") != "3" {
		t.Errorf("%s, Retry-After %s", a.body, a.header.Get("Retry-After"))
	}
}

func TestAnswerIsOneWrite(t *testing.T) {
	f := newFabric()
	s, err := New(testOptions(f, &logBuffer{}))
	if err != nil {
		t.Fatal(err)
	}
	f.topic("orders", nil)
	rec := newRecorder()
	req, _ := http.NewRequestWithContext(t.Context(), "POST", "/v1/topics/orders/records", strings.NewReader(`{"records":[{"text":"a"},{"text":"b"}]}`))
	req.Header.Set("Authorization", "Bearer "+tenantA)
	s.echo.ServeHTTP(rec, req)
	if rec.status != 200 || rec.writes != 1 || rec.h.Get("Content-Length") != fmt.Sprint(rec.body.Len()) {
		t.Errorf("status %d, %d writes, Content-Length %s of %d", rec.status, rec.writes, rec.h.Get("Content-Length"), rec.body.Len())
	}
}
