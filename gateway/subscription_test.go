package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/leases"
)

// work is the path of the subscription of the tests.
const work = "/v1/topics/orders/subscriptions/work"

// worker is a node with the topic orders and its subscription work.
func worker(t *testing.T, change func(*Options)) *node {
	t.Helper()
	n := start(t, change)
	n.f.topic("orders", nil)
	n.q.subscribe("orders", "work")
	return n
}

type subscriptionJSON struct {
	Name, Topic, SubscriptionID, Created, VisibilityTimeout, GapPolicy, Ordering string
	MaxAttempts, MaxInFlight, MaxAckedAhead                                      int
	Backoff                                                                      struct {
		Initial, Max string
		Multiplier   float64
		Jitter       bool
	}
	DeadLetter struct{ Topic *string }
	FairShare  *struct{ By, Header string }
	Push       any
	Partitions []struct {
		Partition, Frontier, Head, LogStart, InFlight, AckedAhead, Owed, Delayed, Waiting, Lag, DeadLetters, Skipped int64
		OldestUnackedAgeSeconds                                                                                      float64
		RetentionHeadroomSeconds                                                                                     *float64
		Gap                                                                                                          *struct{ From, To int64 }
	}
}

func TestPutSubscription(t *testing.T) {
	n := start(t, nil)
	n.f.topic("orders", nil)
	n.f.topic("dead", nil)
	var s subscriptionJSON
	n.call("PUT", work, "").ok(201, &s)
	if s.Name != "work" || s.Topic != "orders" || s.SubscriptionID != "1" || s.VisibilityTimeout != "30s" || s.MaxAttempts != 5 || s.MaxInFlight != 1024 ||
		s.MaxAckedAhead != 1024 || s.Backoff.Initial != "2s" || s.Backoff.Max != "5m" || s.Backoff.Multiplier != 2 || !s.Backoff.Jitter ||
		s.DeadLetter.Topic != nil || s.GapPolicy != "fail" || s.Ordering != "none" || s.FairShare != nil || s.Partitions != nil {
		t.Errorf("the defaults: %+v", s)
	}
	n.call("PUT", work, `{"maxAttempts":3,"backoff":{"max":"1h","multiplier":1.5},"deadLetter":{"topic":"dead"},"fairShare":{"by":"header","header":"tenant"},"start":"earliest"}`).ok(200, &s)
	n.call("PUT", work, `{"visibilityTimeout":"12h","backoff":{"initial":"10m","jitter":false},"push":null}`).ok(200, &s)
	if s.MaxAttempts != 3 || s.VisibilityTimeout != "12h" || s.Backoff.Initial != "10m" || s.Backoff.Max != "1h" || s.Backoff.Multiplier != 1.5 || s.Backoff.Jitter ||
		s.DeadLetter.Topic == nil || *s.DeadLetter.Topic != "dead" || s.FairShare == nil || s.FairShare.Header != "tenant" {
		t.Errorf("members that were left out changed: %+v", s)
	}
	p := n.call("PUT", work, `{"ordering":"key"}`).problem(400, "INVALID_REQUEST")
	if len(p.Errors) != 1 || p.Errors[0].Pointer != "/fairShare" {
		t.Errorf("ordering with fair share: %+v", p)
	}
	s = subscriptionJSON{}
	n.call("PUT", work, `{"ordering":"key","fairShare":null,"deadLetter":null}`).ok(200, &s)
	if s.Ordering != "key" || s.FairShare != nil || s.DeadLetter.Topic != nil {
		t.Errorf("nulls were not taken: %+v", s)
	}
	n.call("PUT", "/v1/topics/orders/subscriptions/other", `{"start":"2026-01-02T03:04:05.0001Z"}`).ok(201, nil)
	if got := n.q.starts; !got[0].Latest || !got[1].Earliest || got[4].Time == nil || *got[4].Time != time.Date(2026, 1, 2, 3, 4, 5, 1e6, time.UTC).UnixMilli() {
		t.Errorf("starts %+v", got)
	}
}

func TestPutSubscriptionRefused(t *testing.T) {
	n := worker(t, nil)
	n.f.topic("there", func(c *api.TopicConfig) { c.Residency = "us" })
	for body, pointer := range map[string]string{
		`{"visibilityTimeout":"999ms"}`:               "/visibilityTimeout",
		`{"visibilityTimeout":"12h1ms"}`:              "/visibilityTimeout",
		`{"visibilityTimeout":30}`:                    "/visibilityTimeout",
		`{"maxAttempts":0}`:                           "/maxAttempts",
		`{"maxAttempts":1e1}`:                         "/maxAttempts",
		`{"maxAttempts":1.0}`:                         "/maxAttempts",
		`{"maxAttempts":"5"}`:                         "/maxAttempts",
		`{"maxInFlight":0}`:                           "/maxInFlight",
		`{"maxAckedAhead":100001}`:                    "/maxAckedAhead",
		`{"backoff":null}`:                            "/backoff",
		`{"backoff":{"initial":"13h"}}`:               "/backoff/initial",
		`{"backoff":{"initial":"6m"}}`:                "/backoff/initial",
		`{"backoff":{"multiplier":0.5}}`:              "/backoff/multiplier",
		`{"backoff":{"multiplier":"2"}}`:              "/backoff/multiplier",
		`{"backoff":{"multiplier":1e400}}`:            "/backoff/multiplier",
		`{"backoff":{"jitter":1}}`:                    "/backoff/jitter",
		`{"backoff":{"min":"1s"}}`:                    "/backoff/min",
		`{"start":"tomorrow"}`:                        "/start",
		`{"start":42}`:                                "/start",
		`{"deadLetter":"dead"}`:                       "/deadLetter",
		`{"deadLetter":{"topic":"__journal"}}`:        "/deadLetter/topic",
		`{"deadLetter":{"topic":"orders"}}`:           "/deadLetter/topic",
		`{"deadLetter":{"queue":"x"}}`:                "/deadLetter/queue",
		`{"gapPolicy":"stop"}`:                        "/gapPolicy",
		`{"ordering":"Key"}`:                          "/ordering",
		`{"fairShare":true}`:                          "/fairShare",
		`{"fairShare":{}}`:                            "/fairShare",
		`{"fairShare":{"by":"header"}}`:               "/fairShare",
		`{"fairShare":{"by":"header","header":""}}`:   "/fairShare",
		`{"fairShare":{"by":"key","header":"x"}}`:     "/fairShare",
		`{"fairShare":{"by":"key"},"ordering":"key"}`: "/fairShare",
		`{"push":{"url":"http://x"}}`:                 "/push",
		`{"visibility":"30s"}`:                        "/visibility",
		`{"maxAttempts":5,"maxAttempts":5}`:           "/maxAttempts",
		`{"maxAttempts":5}{}`:                         "",
		`[]`:                                          "",
	} {
		p := n.call("PUT", work, body).problem(400, "INVALID_REQUEST")
		if len(p.Errors) == 0 || p.Errors[0].Pointer != pointer {
			t.Errorf("%s: %+v, want the pointer %q", body, p.Errors, pointer)
		}
	}
	p := n.call("PUT", work, `{"maxAttempts":0,"gapPolicy":1,"backoff":{"max":1,"jitter":0}}`).problem(400, "INVALID_REQUEST")
	if len(p.Errors) != 4 {
		t.Errorf("not every fault is named: %+v", p.Errors)
	}
	n.call("PUT", work, `{"deadLetter":{"topic":"missing"}}`).problem(404, "UNKNOWN_TOPIC")
	n.call("PUT", work, `{"deadLetter":{"topic":"there"}}`).problem(403, "RESIDENCY_VIOLATION")
	n.f.topic("orders", func(c *api.TopicConfig) { c.Residency = "eu" })
	n.f.topic("anywhere", nil)
	n.call("PUT", work, `{"deadLetter":{"topic":"anywhere"}}`).problem(403, "RESIDENCY_VIOLATION")
	n.call("PUT", work, `{}`, header("Content-Type", "application/x-protobuf")).problem(415, "UNSUPPORTED_MEDIA_TYPE")
	for _, name := range []string{"__x", "..", "a%20b", strings.Repeat("x", 201)} {
		n.call("PUT", "/v1/topics/orders/subscriptions/"+name, "").problem(400, "INVALID_REQUEST")
	}
}

func TestSubscriptionStatistics(t *testing.T) {
	n := worker(t, nil)
	var s subscriptionJSON
	n.call("GET", work, "").ok(200, &s)
	if len(s.Partitions) != 2 {
		t.Fatalf("%+v", s)
	}
	p := s.Partitions[0]
	if p.Frontier != 1 || p.Head != 9 || p.AckedAhead != 2 || p.Owed != 1 || p.Delayed != 3 || p.Waiting != 4 || p.Skipped != 5 || p.OldestUnackedAgeSeconds != 1.5 ||
		*p.RetentionHeadroomSeconds != 90 || *p.Gap != struct{ From, To int64 }{1, 3} {
		t.Errorf("%+v", p)
	}
	if q := s.Partitions[1]; q.Lag != 0 || q.RetentionHeadroomSeconds != nil || q.Gap != nil { // O1: never negative
		t.Errorf("%+v", q)
	}
	var page struct {
		Items      []subscriptionJSON
		NextCursor *string
	}
	n.q.subscribe("orders", "a")
	n.call("GET", "/v1/topics/orders/subscriptions?limit=1", "").ok(200, &page)
	if len(page.Items) != 1 || page.Items[0].Name != "a" || len(page.Items[0].Partitions) != 2 || page.NextCursor == nil {
		t.Fatalf("%+v", page)
	}
	rest := "/v1/topics/orders/subscriptions?statistics=false&cursor=" + *page.NextCursor
	page.Items = nil
	n.call("GET", rest, "").ok(200, &page)
	if len(page.Items) != 1 || page.Items[0].Name != "work" || page.Items[0].Partitions != nil || page.NextCursor != nil {
		t.Fatalf("%+v", page)
	}
	n.f.failWith("Subscription", api.Errorf(api.CodeLeasesUnavailable, "redis is down"))
	n.call("GET", "/v1/topics/orders/subscriptions", "").problem(503, "LEASES_UNAVAILABLE")
	n.call("GET", "/v1/topics/orders/subscriptions?statistics=false", "").ok(200, nil)
	n.f.failWith("Subscription", api.Errorf(api.CodeUnknownSubscription, "gone meanwhile"))
	page.Items = nil
	n.call("GET", "/v1/topics/orders/subscriptions", "").ok(200, &page)
	if len(page.Items) != 0 {
		t.Errorf("%+v", page)
	}
	for _, q := range []string{"limit=0", "statistics=1", "cursor=!", "x=1"} {
		n.call("GET", "/v1/topics/orders/subscriptions?"+q, "").problem(400, "INVALID_REQUEST")
	}
}

func TestDeleteSubscription(t *testing.T) {
	n := worker(t, nil)
	n.call("DELETE", work, "").ok(204, nil)
	n.call("DELETE", work, "").problem(404, "UNKNOWN_SUBSCRIPTION")
}

// queueCalls are the calls of each route below a subscription that are valid in form.
func queueCalls() []struct{ method, path, body string } {
	return []struct{ method, path, body string }{
		{"GET", "", ""},
		{"PUT", "", "{}"},
		{"DELETE", "", ""},
		{"POST", "/lease", ""},
		{"GET", "/consume", ""},
		{"POST", "/ack", `{"receipts":["0:1:n"]}`},
		{"POST", "/nack", `{"receipts":["0:1:n"]}`},
		{"POST", "/extend", `{"receipts":["0:1:n"]}`},
		{"POST", "/ack?receipt=0:1:n", ""},
		{"GET", "/peek", ""},
		{"POST", "/seek", `{"to":"latest"}`},
		{"GET", "/dead-letters", ""},
		{"POST", "/dead-letters/redrive", `{"all":true}`},
		{"POST", "/dead-letters/discard", `{"all":true}`},
		{"GET", "/tasks/t1", ""},
		{"DELETE", "/tasks/t1", ""},
	}
}

func TestQueueRoutesRefuse(t *testing.T) {
	n := worker(t, nil)
	n.f.topic("there", func(c *api.TopicConfig) { c.Residency = "us" })
	n.q.subscribe("there", "work")
	down := api.Errorf(api.CodeLeasesUnavailable, "redis is down")
	down.RetryAfter = 3 * time.Second
	for _, c := range queueCalls() {
		t.Run(c.method+c.path, func(t *testing.T) {
			call := func(path string, opts ...func(*http.Request)) *answer {
				return n.call(c.method, path+c.path, c.body, opts...)
			}
			call(work, header("Authorization", "")).problem(401, "UNAUTHENTICATED")
			call(work, token(tenantA+"/nothing")).problem(403, "FORBIDDEN")
			call("/v1/topics/missing/subscriptions/work").problem(404, "UNKNOWN_TOPIC")
			call("/v1/topics/there/subscriptions/work").problem(403, "RESIDENCY_VIOLATION")
			call("/v1/topics/orders/subscriptions/__x").problem(400, "INVALID_REQUEST")
			call(work, token(tenantB)).problem(404, "UNKNOWN_TOPIC") // another tenant sees nothing of it
			sep := "?"
			if strings.Contains(c.path, "?") {
				sep = "&"
			}
			n.call(c.method, work+c.path+sep+"nonsense=1", c.body).problem(400, "INVALID_REQUEST")
			if c.method == "PUT" {
				return
			}
			call("/v1/topics/orders/subscriptions/missing").problem(404, "UNKNOWN_SUBSCRIPTION")
			for _, m := range []string{"Subscription", "DeleteSubscription", "Lease", "Settle", "Peek", "Seek", "DeadLetters", "Redrive", "Discard", "Task"} {
				n.f.failWith(m, down)
				defer n.f.failWith(m, nil)
			}
			a := call(work)
			a.problem(503, "LEASES_UNAVAILABLE")
			if a.header.Get("Retry-After") != "3" {
				t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
			}
		})
	}
}

func TestWithoutQueuesLeasesAreUnavailable(t *testing.T) {
	n := start(t, func(o *Options) { o.Queues = nil })
	n.f.topic("orders", nil)
	n.call("GET", "/v1/topics/orders/subscriptions", "").problem(503, "LEASES_UNAVAILABLE")
	for _, c := range queueCalls() {
		n.call(c.method, work+c.path, c.body).problem(503, "LEASES_UNAVAILABLE")
		n.call(c.method, work+c.path, c.body, token(tenantA+"/nothing")).problem(403, "FORBIDDEN")
	}
}

func TestScopesOfQueues(t *testing.T) {
	n := worker(t, nil)
	for _, c := range queueCalls() {
		for scope, may := range map[string]bool{
			"admin": true, "read": c.method != "PUT" && (c.method != "DELETE" || c.path != ""),
			"publish": c.method == "GET" && (c.path == "" || strings.HasPrefix(c.path, "/tasks")),
		} {
			if c.method == "DELETE" && c.path == "" {
				n.q.subscribe("orders", "work")
			}
			a := n.call(c.method, work+c.path, c.body, token(tenantA+"/"+scope))
			if (a.status != 403) != may {
				t.Errorf("%s %s with scope %s: %d", c.method, c.path, scope, a.status)
			}
			n.q.subscribe("orders", "work")
		}
	}
}

// resources notes what is asked of an authorizer.
type resources struct{ asked chan string }

func (r resources) Authorize(_ context.Context, _ *auth.Principal, op auth.Operation, res auth.Resource) error {
	r.asked <- fmt.Sprintf("%s %s:%s:%s", op, res.Tenant, res.Kind, res.Name)
	return nil
}

func TestResourcesOfQueues(t *testing.T) {
	r := resources{make(chan string, 10)}
	n := worker(t, func(o *Options) { o.Authorizer = r })
	n.f.topic("dead", nil)
	n.call("POST", work+"/lease", "").ok(204, nil)
	if got := <-r.asked; got != "consume acme:subscription:orders/work" {
		t.Error(got)
	}
	n.call("PUT", work, `{"deadLetter":{"topic":"dead"}}`).ok(200, nil)
	if got := <-r.asked + ", " + <-r.asked; got != "configure acme:subscription:orders/work, publish acme:topic:dead" {
		t.Error(got)
	}
}

func TestSubscriptionListTellsOnlyOfWhatMayBeSeen(t *testing.T) {
	n := start(t, func(o *Options) { o.Authorizer = onlyTopic("orders/b") })
	n.f.topic("orders", nil)
	for _, name := range []string{"a", "b", "c", "d"} {
		n.q.subscribe("orders", name)
	}
	var page struct {
		Items      []subscriptionJSON
		NextCursor *string
	}
	n.call("GET", "/v1/topics/orders/subscriptions?limit=1", "").ok(200, &page)
	if len(page.Items) != 1 || page.Items[0].Name != "b" || page.NextCursor != nil {
		t.Errorf("%+v", page)
	}
}

func TestQueueErrorsThatAreNoAPIErrors(t *testing.T) {
	n := worker(t, nil)
	n.f.failWith("Lease", errors.New("secret detail"))
	p := n.call("POST", work+"/lease", "").problem(500, "INTERNAL")
	if strings.Contains(p.Detail, "secret") {
		t.Error(p.Detail)
	}
	n.f.failWith("Lease", context.Canceled)
	n.call("POST", work+"/lease", "").problem(503, "LEASES_UNAVAILABLE")
	n.f.failWith("Lease", nil)
	n.f.failWith("Settle", fmt.Errorf("wrapped: %w", context.DeadlineExceeded))
	n.call("POST", work+"/ack?receipt=0:0:n", "").problem(503, "LEASES_UNAVAILABLE")
}

func TestRetentionGap(t *testing.T) {
	n := worker(t, nil)
	gap := api.Errorf(api.CodeRetentionGap, "retention has overtaken the subscription; seek, or set gapPolicy to skip").
		With("gaps", []map[string]int64{{"partition": 3, "from": 5, "to": 9}})
	n.f.failWith("Lease", gap)
	for _, path := range []string{"/lease", "/consume"} {
		method := map[bool]string{true: "POST", false: "GET"}[path == "/lease"]
		a := n.call(method, work+path, "")
		a.problem(409, "RETENTION_GAP")
		var p struct {
			Gaps []struct{ Partition, From, To int64 }
		}
		a.ok(409, &p)
		if len(p.Gaps) != 1 || p.Gaps[0].Partition != 3 || p.Gaps[0].From != 5 || p.Gaps[0].To != 9 {
			t.Errorf("%s", a.body)
		}
	}
}

var _ leases.Queues = (*queues)(nil)
