//go:build contract

// The validator is a large dependency: with -race or fuzzing's instrumentation it takes minutes to compile on two cores and finds nothing
// more. So `make test` runs this file by itself, with the tag and without -race. Every route that it calls is called with -race by the
// other tests.

package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases"
	"github.com/forebaymq/forebay/leases/groups"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// contract is openapi.yaml, loaded, with what a test has seen of it.
type contract struct {
	t     *testing.T
	model *v3.Document
	v     validator.Validator
	seen  map[string]bool // "GET /v1/topics 200"
}

func loadContract(t *testing.T) *contract {
	t.Helper()
	doc, err := libopenapi.NewDocument(openAPIYAML)
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if ok, errs := v.ValidateDocument(); !ok {
		for _, e := range errs {
			t.Errorf("openapi.yaml: %s: %s", e.Message, e.Reason)
		}
	}
	model, err := doc.BuildV3Model()
	if err != nil {
		t.Fatal(err)
	}
	return &contract{t: t, model: &model.Model, v: v, seen: map[string]bool{}}
}

// operations lists "METHOD /path" with the documented statuses.
func (c *contract) operations() map[string][]string {
	out := map[string][]string{}
	for path, item := range c.model.Paths.PathItems.FromOldest() {
		for method, op := range item.GetOperations().FromOldest() {
			for status := range op.Responses.Codes.FromOldest() {
				key := strings.ToUpper(method) + " " + path
				out[key] = append(out[key], status)
			}
		}
	}
	return out
}

// template turns an echo path into that of OpenAPI.
func template(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if strings.HasPrefix(p, ":") {
			parts[i] = "{" + p[1:] + "}"
		}
	}
	return strings.Join(parts, "/")
}

func TestOpenAPIHasEveryRouteAndNoOther(t *testing.T) {
	documented := loadContract(t).operations()
	s, err := New(testOptions(newFabric(), io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	registered := map[string]bool{}
	for _, r := range s.echo.Routes() {
		registered[r.Method+" "+template(r.Path)] = true
	}
	for op := range documented {
		if !registered[op] {
			t.Errorf("%s is documented and not served", op)
		}
	}
	for op := range registered {
		if _, ok := documented[op]; !ok {
			t.Errorf("%s is served and not documented", op)
		}
	}
}

// ofOtherRoutes are the codes that no route of this document can answer: schemas have their own.
var ofOtherRoutes = []api.Code{api.CodeIncompatibleSchema, api.CodeSchemaViolation}

func TestOpenAPIHasEveryCode(t *testing.T) {
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Enum []api.Code }
		}
	}
	raw, err := openAPIDocument()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	documented := doc.Components.Schemas["Code"].Enum
	for code := range api.Codes {
		if slices.Contains(documented, code) == slices.Contains(ofOtherRoutes, code) {
			t.Errorf("%s: must be in the schema Code of openapi.yaml or in ofOtherRoutes, and not in both", code)
		}
	}
	for _, code := range documented {
		if _, ok := api.Codes[code]; !ok {
			t.Errorf("%s is documented and not in api.Codes", code)
		}
	}
}

func TestOpenAPIIsServed(t *testing.T) {
	n := start(t, nil)
	var doc map[string]any
	n.call("GET", "/openapi.json", "", header("Authorization", "")).ok(200, &doc)
	if doc["openapi"] != "3.1.0" {
		t.Errorf("openapi: %v", doc["openapi"])
	}
	c := loadContract(t)
	served, err := libopenapi.NewDocument(n.call("GET", "/openapi.json", "").body)
	if err != nil {
		t.Fatal(err)
	}
	model, err := served.BuildV3Model()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := model.Model.Paths.PathItems.Len(), c.model.Paths.PathItems.Len(); got != want {
		t.Errorf("%d paths are served, %d are written", got, want)
	}
}

// exchange is one call of the contract test.
type exchange struct {
	op      string // "GET /v1/topics/{topic}"
	path    string
	body    string
	opts    []func(*http.Request)
	status  int
	invalid bool // the request itself breaks the contract, so only the answer is held against it
	fail    map[string]error
}

// run sends the request and validates both sides.
func (c *contract) run(n *node, x exchange) {
	c.t.Helper()
	for method, err := range x.fail {
		n.f.failWith(method, err)
		defer n.f.failWith(method, nil)
	}
	method, _, _ := strings.Cut(x.op, " ")
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	build := func() *http.Request {
		req, err := http.NewRequestWithContext(ctx, method, "http://"+n.Addr()+x.path, strings.NewReader(x.body))
		if err != nil {
			c.t.Fatal(err)
		}
		if x.body == "" {
			req.Body, req.ContentLength = http.NoBody, 0
		} else {
			req.Header.Set("Content-Type", "application/json")
		}
		req.Header.Set("Authorization", "Bearer "+tenantA)
		for _, o := range x.opts {
			o(req)
		}
		return req
	}
	req := build()
	if !x.invalid {
		if ok, errs := c.v.ValidateHttpRequest(req); !ok {
			for _, e := range errs {
				c.t.Errorf("%s %s: request: %s: %s %v", method, x.path, e.Message, e.Reason, e.SchemaValidationErrors)
			}
		}
	}
	res, err := n.hc.Do(build())
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, x.path, err)
	}
	defer res.Body.Close()
	var body []byte
	if res.Header.Get("Content-Type") == typeEvents {
		cancel() // it has no end of its own
	} else if body, err = io.ReadAll(res.Body); err != nil {
		c.t.Fatal(err)
	}
	c.check(x, req, res, body)
}

func (c *contract) check(x exchange, req *http.Request, res *http.Response, body []byte) {
	c.t.Helper()
	if res.StatusCode != x.status {
		c.t.Errorf("%s (%s): status %d, want %d: %s", x.op, x.path, res.StatusCode, x.status, body)
		return
	}
	c.seen[fmt.Sprintf("%s %d", x.op, x.status)] = true
	if res.Header.Get("X-Request-Id") == "" {
		c.t.Errorf("%s: no X-Request-Id", x.op)
	}
	checked := &http.Response{StatusCode: res.StatusCode, Header: res.Header, Body: io.NopCloser(bytes.NewReader(body)), Request: req}
	if ok, errs := c.v.ValidateHttpResponse(req, checked); !ok {
		for _, e := range errs {
			c.t.Errorf("%s %d: answer: %s: %s %v\n%s", x.op, x.status, e.Message, e.Reason, e.SchemaValidationErrors, body)
		}
	}
}

// TestOpenAPIAgreesWithTheServer calls every operation in every way that the document knows an answer to, and fails when a documented
// answer was not seen.
func TestOpenAPIAgreesWithTheServer(t *testing.T) {
	c := loadContract(t)
	n := start(t, func(o *Options) { o.Limits.MaxRequestBytes = 4 << 10 })
	n.f.topic("orders", func(cfg *api.TopicConfig) { cfg.Partitions = 2 })
	n.q.subscribe("orders", "leaving")
	n.f.topic("there", func(cfg *api.TopicConfig) { cfg.Residency = "us" })
	n.f.positions = []metadata.ProducerPosition{{Topic: "orders", Partition: 1, Sequence: 4}}
	const rec = `{"records":[{"key":"k","value":{"a":[1,null]},"headers":[["h","1"],["h","2"]],"time":"2026-01-02T03:04:05.678Z","id":"e1"},{"keyBase64":"AAE=","data":"AAEC","delay":"30s"},{"text":"","headers":{"a":"b"}},{"partition":1}]}`
	unavailable := api.Errorf(api.CodeMetadataUnavailable, "no quorum")
	large := strings.Repeat(" ", 4<<10+1)

	ops := map[string]struct{ path, good, call string }{
		"GET /v1/topics":                                        {"/v1/topics", "", "Sync"},
		"PUT /v1/topics/{topic}":                                {"/v1/topics/orders", `{"cleanup":"compact,delete","retention":{"time":null,"bytes":1000}}`, "PutTopic"},
		"GET /v1/topics/{topic}":                                {"/v1/topics/orders", "", "Sync"},
		"DELETE /v1/topics/{topic}":                             {"/v1/topics/gone", "", "DeleteTopic"},
		"POST /v1/topics/{topic}/records":                       {"/v1/topics/orders/records", `{"records":[{"key":"k","value":1}]}`, "Append"},
		"POST /v1/records":                                      {"/v1/records", `{"topics":{"orders":{"records":[{"key":"k","value":1}]}}}`, "Append"},
		"POST /v1/producers/{producer}":                         {"/v1/producers/p1", "", "StartProducer"},
		"GET /v1/producers/{producer}":                          {"/v1/producers/p1", "", "ProducerPositions"},
		"GET /v1/topics/{topic}/partitions/{partition}/records": {"/v1/topics/orders/partitions/0/records", "", "Read"},
		"GET /v1/topics/{topic}/partitions/{partition}/offset":  {"/v1/topics/orders/partitions/0/offset?timestamp=2026-01-02T03:04:05Z", "", "OffsetForTime"},
		"GET /v1/topics/{topic}/stream":                         {"/v1/topics/orders/stream", "", "PartitionInfos"},
		"GET " + queuesPath:                                     {"/v1/topics/orders/subscriptions", "", "Subscriptions"},
		"PUT " + queuePath:                                      {work, `{"start":"earliest","backoff":{"max":"1h"},"deadLetter":{"topic":null},"fairShare":{"by":"header","header":"h"},"push":null}`, "PutSubscription"},
		"GET " + queuePath:                                      {work, "", "Subscription"},
		"DELETE " + queuePath:                                   {"/v1/topics/orders/subscriptions/leaving", "", "DeleteSubscription"},
		"POST " + queuePath + "/lease":                          {work + "/lease", `{"max":2,"wait":"0s","visibility":"30s","requestId":"r","maxBytes":1000}`, "Lease"},
		"GET " + queuePath + "/consume":                         {work + "/consume?max=1&wait=0s&visibility=30s&requestId=r&maxBytes=1000", "", "Lease"},
		"POST " + queuePath + "/ack":                            {work + "/ack", `{"receipts":["0:1:n"]}`, "Settle"},
		"POST " + queuePath + "/nack":                           {work + "/nack", `{"receipts":["0:1:n"],"delay":"1s","reason":"r"}`, "Settle"},
		"POST " + queuePath + "/extend":                         {work + "/extend", `{"receipts":["0:1:n"],"visibility":"1m"}`, "Settle"},
		"GET " + queuePath + "/peek":                            {work + "/peek?max=3", "", "Peek"},
		"POST " + queuePath + "/seek":                           {work + "/seek", `{"offsets":{"0":5}}`, "Seek"},
		"GET " + queuePath + "/dead-letters":                    {work + "/dead-letters?limit=5", "", "DeadLetters"},
		"POST " + queuePath + "/dead-letters/redrive":           {work + "/dead-letters/redrive", `{"all":true,"ratePerSecond":5}`, "Redrive"},
		"POST " + queuePath + "/dead-letters/discard":           {work + "/dead-letters/discard", `{"offsets":[{"partition":0,"offset":1}]}`, "Discard"},
		"GET " + queuePath + "/tasks/{task}":                    {work + "/tasks/task-1", "", "Task"},
		"DELETE " + queuePath + "/tasks/{task}":                 {work + "/tasks/task-1", "", "Task"},
		"GET /v1/groups":                                        {"/v1/groups?limit=5", "", "Groups"},
		"GET " + groupPath:                                      {"/v1/groups/billing", "", "Group"},
		"DELETE " + groupPath:                                   {"/v1/groups/leaving", "", "DeleteGroup"},
		"POST " + groupPath + "/join":                           {"/v1/groups/joining/join", `{"topics":["orders"],"memberId":null,"instanceId":"i","sessionTimeout":"10s","start":"latest"}`, "Join"},
		"POST " + groupPath + "/heartbeat":                      {"/v1/groups/billing/heartbeat", `{"memberId":"m-1","generation":1,"owned":[{"topic":"orders","partition":0}]}`, "Heartbeat"},
		"POST " + groupPath + "/leave":                          {"/v1/groups/left/leave", `{"memberId":"m-1"}`, "Leave"},
		"POST " + groupPath + "/poll":                           {"/v1/groups/billing/poll", `{"memberId":"m-1","generation":1,"maxRecords":10,"maxBytes":1000,"wait":"0s"}`, "Poll"},
		"POST " + groupPath + "/seek":                           {"/v1/groups/idle/seek", `{"topic":"orders","to":"latest","dryRun":false}`, "GroupSeek"},
		"GET " + groupPath + "/offsets":                         {"/v1/groups/billing/offsets", "", "Offsets"},
		"PUT " + groupPath + "/offsets":                         {"/v1/groups/billing/offsets", `{"memberId":"m-1","generation":1,"offsets":[{"topic":"orders","partition":0,"offset":1,"metadata":"x"}]}`, "Commit"},
		"GET /healthz":                                          {"/healthz", "", ""},
		"GET /readyz":                                           {"/readyz", "", "Available"},
		"GET /openapi.json":                                     {"/openapi.json", "", ""},
	}
	documented := c.operations()
	for op := range documented {
		if _, ok := ops[op]; !ok {
			t.Fatalf("%s has no call in this test", op)
		}
	}

	// Successes first, in an order that makes sense.
	c.run(n, exchange{op: "PUT /v1/topics/{topic}", path: "/v1/topics/gone", body: `{"partitions":3,"schema":{"subject":null,"mode":"off"},"residency":null}`, status: 201})
	c.run(n, exchange{op: "POST /v1/topics/{topic}/records", path: "/v1/topics/orders/records", body: rec, status: 200})
	c.run(n, exchange{op: "POST /v1/topics/{topic}/records", path: "/v1/topics/orders/records", body: `{"records":[{"key":"k"}],"producer":{"id":"p","epoch":1,"sequence":5}}`, status: 200})
	for _, p := range []string{"?offset=0&limit=10&maxBytes=100&wait=1s", "?offset=earliest", "?offset=latest&wait=0s", "?timestamp=2020-01-02T03:04:05Z"} {
		for _, partition := range []string{"0", "1"} {
			c.run(n, exchange{op: "GET /v1/topics/{topic}/partitions/{partition}/records", path: "/v1/topics/orders/partitions/" + partition + "/records" + p, status: 200})
		}
	}
	c.run(n, exchange{op: "GET /v1/topics/{topic}/partitions/{partition}/offset", path: "/v1/topics/orders/partitions/0/offset?timestamp=2020-01-02T03:04:05Z", status: 200})
	c.run(n, exchange{op: "GET /v1/topics", path: "/v1/topics?limit=1", status: 200})
	c.run(n, exchange{op: "GET /v1/producers/{producer}", path: "/v1/producers/p1?topic=orders", status: 200})
	c.run(n, exchange{op: "GET /v1/topics/{topic}/stream", path: "/v1/topics/orders/stream?partition=1&offset=0", status: 200, opts: []func(*http.Request){header("Last-Event-ID", "1:0")}})

	c.queueSuccesses(n)
	c.groupSuccesses(n)

	for op, o := range ops {
		success := 200
		switch {
		case op == "DELETE /v1/topics/{topic}", op == "DELETE "+queuePath, op == "DELETE "+groupPath, op == "PUT "+groupPath+"/offsets", op == "POST "+groupPath+"/leave":
			success = 204
		case strings.HasSuffix(op, "/redrive"):
			success = 202
		case strings.HasSuffix(op, "/lease"), strings.HasSuffix(op, "/consume"):
			n.q.offer("orders", "work", text(1, "x"))
		}
		c.run(n, exchange{op: op, path: o.path, body: o.good, status: success})
		for _, status := range documented[op] {
			x := exchange{op: op, path: o.path, body: o.good, fail: map[string]error{}}
			wait := false
			switch status {
			case "200", "201", "202", "204":
				continue
			case "400":
				x.path, x.invalid, x.status = addQuery(o.path, "nonsense=1"), true, 400
			case "401":
				x.opts, x.status = []func(*http.Request){token("nobody")}, 401
			case "403":
				x.opts, x.status = []func(*http.Request){token(tenantA + "/nothing")}, 403
				if strings.Contains(o.path, "orders/") { // also by residency
					c.run(n, exchange{op: op, path: strings.Replace(o.path, "orders/", "there/", 1), body: o.good, status: 403})
				}
				if strings.Contains(op, groupPath) && strings.Contains(o.good, "orders") && !strings.HasSuffix(op, "/heartbeat") {
					c.run(n, exchange{op: op, path: o.path, body: strings.Replace(o.good, "orders", "there", 1), status: 403})
				}
				if op == "PUT "+queuePath {
					c.run(n, exchange{op: op, path: o.path, body: `{"deadLetter":{"topic":"there"}}`, status: 403})
				}
			case "404":
				x.status = 404
				if strings.Contains(op, groupPath) {
					parts := strings.Split(o.path, "/")
					parts[3] = "missing"
					x.path, x.body = strings.Join(parts, "/"), o.good
					if strings.HasSuffix(op, "/join") || strings.HasSuffix(op, "/seek") {
						x.body = strings.Replace(o.good, "orders", "missing", 1)
					}
				} else if op == "POST /v1/records" || op == "GET /v1/producers/{producer}" {
					x.path, x.body = o.path+map[bool]string{true: "?topic=missing"}[strings.HasPrefix(op, "GET")], strings.ReplaceAll(o.good, "orders", "missing")
				} else {
					x.path = strings.NewReplacer("orders", "missing", "gone", "missing").Replace(o.path)
				}
				if strings.Contains(op, queuePath) && !strings.HasPrefix(op, "PUT") {
					c.run(n, exchange{op: op, path: strings.NewReplacer("/work", "/missing", "/leaving", "/missing").Replace(o.path), body: o.good, status: 404})
				}
			case "408":
				wait = true
			case "409":
				x.status = 409
				x.fail[o.call] = api.Errorf(api.CodeConflict, "others were faster")
				switch o.call {
				case "Heartbeat":
					x.fail[o.call] = api.Errorf(api.CodeStaleGeneration, "it has ended").With("generation", int64(3))
				case "Commit":
					x.fail[o.call] = api.Errorf(api.CodeNotOwner, "not its own").With("partition", 1)
				case "Poll":
					x.fail[o.call] = api.Errorf(api.CodeRetentionGap, "lost").With("gaps", []map[string]any{{"topic": "orders", "partition": 0, "from": 1, "to": 4}})
				case "Lease":
					x.fail[o.call] = api.Errorf(api.CodeRetentionGap, "lost").With("gaps", []map[string]int64{{"partition": 0, "from": 1, "to": 4}})
				}
			case "410":
				x.path, x.body, x.status = o.path+"?receipt=0:1:n", "", 410
			case "413":
				x.body, x.invalid, x.status = large, true, 413
			case "415":
				x.invalid, x.status = true, 415
				x.opts = []func(*http.Request){header("Content-Type", "text/csv"), header("Accept", "text/csv")}
			case "416":
				x.status = 416
				if o.call == "GroupSeek" {
					x.fail[o.call] = api.Errorf(api.CodeOffsetOutOfRange, "outside").With("partition", 0).With("logStart", int64(1)).With("head", int64(2))
					break
				}
				x.path = addQuery(o.path, "partition=0&offset=1000")
				if strings.Contains(o.path, "partitions") {
					x.path = o.path + "?offset=1000"
				}
			case "429":
				x.status = 429
				x.fail[o.call] = api.Errorf(api.CodeQuotaExceeded, "used up")
			case "500":
				x.status = 500
				x.fail[o.call] = errors.New("bug")
				if o.call == "" || op == "GET /readyz" {
					n.phase.Store(phaseFailed)
					c.run(n, x)
					n.phase.Store(phaseServing)
					continue
				}
			case "503":
				x.status = 503
				x.fail[o.call] = unavailable
				if strings.Contains(op, queuesPath) || strings.Contains(op, groupPath) {
					x.fail[o.call] = api.Errorf(api.CodeLeasesUnavailable, "redis is down")
				}
			case "504":
				x.status = 504
				x.fail[o.call] = api.Errorf(api.CodeOutcomeUnknown, "the deadline came first")
			default:
				t.Fatalf("%s documents %s and this test has no way to provoke it", op, status)
			}
			if wait {
				c.slowBody(op, o.path)
				continue
			}
			c.run(n, x)
		}
	}
	for op, statuses := range documented {
		for _, status := range statuses {
			if !c.seen[op+" "+status] {
				t.Errorf("%s %s is documented and was not seen", op, status)
			}
		}
	}
	if t.Failed() {
		t.Logf("seen: %v", slices.Sorted(maps.Keys(c.seen)))
	}
}

// groupSuccesses calls the routes of groups in further ways that succeed.
func (c *contract) groupSuccesses(n *node) {
	c.t.Helper()
	n.g.joined("billing", "orders")
	n.g.joined("left", "orders")
	n.g.put("leaving", "idle")
	run := func(op, path, body string, status int) {
		c.t.Helper()
		method, rest, _ := strings.Cut(op, " ")
		c.run(n, exchange{op: method + " " + groupPath + rest, path: "/v1/groups/" + path, body: body, status: status})
	}
	n.g.offer("billing", groups.Polled{TopicPartition: groups.TopicPartition{Topic: "orders"}, Records: []segment.Record{text(1, "a")}, NextOffset: 2, Head: 9})
	run("POST /poll", "billing/poll", `{"memberId":"m-1","generation":1}`, 200)
	run("POST /heartbeat", "billing/heartbeat", `{"memberId":"m-1","generation":1,"owned":null}`, 200)
	run("PUT /offsets", "idle/offsets", `{"offsets":[{"topic":"orders","partition":0,"offset":1}]}`, 204)
	run("GET /offsets", "idle/offsets", "", 200)
	run("GET ", "idle", "", 200)
	run("POST /seek", "billing/seek", `{"topic":"orders","timestamp":"2026-01-02T03:04:05Z","dryRun":true}`, 200)
	run("POST /seek", "idle/seek", `{"topic":"orders","offsets":{"0":5}}`, 200)
	run("POST /seek", "billing/seek", `{"topic":"orders","to":"earliest"}`, 409)
	run("PUT /offsets", "billing/offsets", `{"memberId":"m-1","generation":9,"offsets":[]}`, 409)
	c.run(n, exchange{op: "GET /v1/groups", path: "/v1/groups?limit=1", status: 200})
}

// Paths of work queues and of groups in the document.
const (
	groupPath  = "/v1/groups/{group}"
	queuesPath = "/v1/topics/{topic}/subscriptions"
	queuePath  = queuesPath + "/{subscription}"
)

// queueSuccesses calls the routes of work queues in the ways that they succeed, in an order that makes sense.
func (c *contract) queueSuccesses(n *node) {
	c.t.Helper()
	run := func(op, path, body string, status int) {
		c.t.Helper()
		method, rest, _ := strings.Cut(op, " ")
		c.run(n, exchange{op: method + " " + queuePath + rest, path: path, body: body, status: status})
	}
	run("PUT ", work, `{"visibilityTimeout":"30s","maxAttempts":5,"maxInFlight":10,"maxAckedAhead":10,"ordering":"none","gapPolicy":"skip","start":"2026-01-02T03:04:05Z","fairShare":{"by":"key"}}`, 201)
	run("PUT ", work, `{"fairShare":null,"deadLetter":null,"ordering":"key"}`, 200)
	run("PUT ", work, `{"ordering":"none"}`, 200)
	run("POST /lease", work+"/lease", "", 204)
	run("GET /consume", work+"/consume", "", 204)
	n.q.offer("orders", "work", text(1, "a"), text(2, "b"), text(3, "c"), text(4, "d"), text(5, "e"))
	run("POST /lease", work+"/lease", `{"max":5000}`, 200)
	for _, one := range []struct {
		call, params string
		status       int
	}{{"ack", "", 204}, {"nack", "&delay=0s&reason=r", 204}, {"extend", "&visibility=13h", 200}} {
		receipt := fmt.Sprintf("0:%d:n%d", len(one.call)-2, len(one.call)-2) // three of the five
		run("POST /"+one.call, work+"/"+one.call+"?receipt="+receipt+one.params, "", one.status)
		run("POST /"+one.call, work+"/"+one.call, `{"receipts":["0:5:n5","0:9:x","x"]}`, 200)
	}
	run("GET /peek", work+"/peek", "", 200)
	run("POST /seek", work+"/seek", `{"to":"earliest"}`, 200)
	run("POST /seek", work+"/seek", `{"timestamp":"2026-01-02T03:04:05Z"}`, 200)
	rec := text(7, "poison")
	n.q.bury("orders", "work", leases.DeadLetter{Offset: 7, Attempts: 5, Reason: "r", FirstFailedAt: 1, DeadAt: 2, Record: &rec})
	n.q.bury("orders", "work", leases.DeadLetter{Offset: 8, Attempts: 5, DeadAt: 2, Expired: true})
	run("GET /dead-letters", work+"/dead-letters?limit=1", "", 200)
	run("GET /dead-letters", work+"/dead-letters?records=false", "", 200)
	run("POST /dead-letters/redrive", work+"/dead-letters/redrive", `{"offsets":[{"partition":0,"offset":7}]}`, 202)
	run("GET /tasks/{task}", work+"/tasks/task-1", "", 200)
	run("POST /dead-letters/discard", work+"/dead-letters/discard", `{"all":true}`, 200)
	c.run(n, exchange{op: "GET " + queuesPath, path: "/v1/topics/orders/subscriptions?limit=1&statistics=false", status: 200})
}

func addQuery(path, q string) string {
	if strings.Contains(path, "?") {
		return path + "&" + q
	}
	return path + "?" + q
}

// slowBody provokes 408: a body of which only the beginning comes.
func (c *contract) slowBody(op, path string) {
	c.t.Helper()
	n := start(c.t, func(o *Options) { o.Timeouts.Grace = 50 * time.Millisecond })
	n.f.topic("orders", nil)
	pr, pw := io.Pipe()
	defer pw.Close()
	go func() { _, _ = pw.Write([]byte("{")) }()
	method, _, _ := strings.Cut(op, " ")
	req, _ := http.NewRequestWithContext(c.t.Context(), method, "http://"+n.Addr()+path, pr)
	req.Header.Set("Authorization", "Bearer "+tenantA)
	req.Header.Set("Content-Type", "application/json")
	res, err := n.hc.Do(req)
	if err != nil {
		var ne net.Error
		c.t.Fatalf("%s: %v (timeout: %v)", op, err, errors.As(err, &ne) && ne.Timeout())
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	req.Body, req.ContentLength = http.NoBody, 0
	c.check(exchange{op: op, path: path, status: 408}, req, res, body)
}
