package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/forebaymq/forebay/api"
)

// event is one block of an event stream.
type event struct {
	id, name, data, retry string
	comment               bool
}

// tail is a client of an event stream.
type tail struct {
	t      *testing.T
	events chan event // closed when the stream ends
	cancel context.CancelFunc
	header http.Header
}

// tail opens an event stream and takes its first block, which sets the id and is no event.
func (n *node) tail(path string, opts ...func(*http.Request)) (*tail, event) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+n.Addr()+path, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+tenantA)
	for _, o := range opts {
		o(req)
	}
	res, err := n.hc.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		n.t.Fatalf("status %d, %v", res.StatusCode, res.Header)
	}
	tl := &tail{n.t, make(chan event, 100), cancel, res.Header}
	go func() {
		defer close(tl.events)
		defer res.Body.Close()
		var e event
		sc := bufio.NewScanner(res.Body)
		for sc.Scan() {
			field, value, _ := strings.Cut(sc.Text(), ":")
			value = strings.TrimPrefix(value, " ")
			switch {
			case sc.Text() == "":
				tl.events <- e
				e = event{}
			case field == "":
				e.comment, e.data = true, value
			case field == "id":
				e.id = value
			case field == "event":
				e.name = value
			case field == "retry":
				e.retry = value
			case field == "data":
				if e.data != "" {
					e.data += "\n"
				}
				e.data += value
			}
		}
	}()
	n.t.Cleanup(func() {
		cancel()
		for range tl.events {
		}
	})
	return tl, tl.next()
}

// next gives the next block that is no comment.
func (tl *tail) next() event {
	tl.t.Helper()
	select {
	case e, ok := <-tl.events:
		if !ok {
			tl.t.Fatal("the stream has ended")
		}
		return e
	case <-time.After(10 * time.Second):
		tl.t.Fatal("no event came")
	}
	return event{}
}

// record gives the next event as a record.
func (tl *tail) record() (e event, partition, offset int64, text string) {
	tl.t.Helper()
	e = tl.next()
	var r struct {
		Partition, Offset int64
		Text              string
	}
	if err := json.Unmarshal([]byte(e.data), &r); err != nil || e.name != "" {
		tl.t.Fatalf("event %+v: %v", e, err)
	}
	return e, r.Partition, r.Offset, r.Text
}

func TestStreamFromEarliestAndResume(t *testing.T) {
	n := start(t, nil)
	n.fill("orders", 3)
	tl, first := n.tail("/v1/topics/orders/stream?offset=earliest")
	if first.retry != "2000" || first.id != "0:0" || first.data != "" {
		t.Errorf("first block %+v", first)
	}
	if tl.header.Get("Cache-Control") != "no-store" || tl.header.Get("X-Request-Id") == "" {
		t.Errorf("headers %v", tl.header)
	}
	var ids []string
	for i := range 3 {
		e, _, offset, text := tl.record()
		if offset != int64(i) || text != fmt.Sprint("r", i) || e.id != fmt.Sprint("0:", i+1) {
			t.Errorf("event %d: %+v", i, e)
		}
		ids = append(ids, e.id)
	}
	n.fill("orders", 1)
	if e, _, offset, _ := tl.record(); offset != 3 || e.id != "0:4" {
		t.Errorf("live event %+v", e)
	}
	tl.cancel()

	again, first := n.tail("/v1/topics/orders/stream?offset=latest", header("Last-Event-ID", ids[1]))
	if first.id != "0:2" {
		t.Errorf("resumed at %s", first.id)
	}
	if _, _, offset, _ := again.record(); offset != 2 {
		t.Errorf("resumed with offset %d", offset)
	}
}

func TestStreamOfAllPartitionsLosesNothingOverResumes(t *testing.T) {
	n := start(t, nil)
	n.f.topic("orders", func(c *api.TopicConfig) { c.Partitions = 4 })
	const total = 40
	for i := range total {
		n.call("POST", "/v1/topics/orders/records", fmt.Sprintf(`{"records":[{"partition":%d,"text":"%d"}]}`, i%3, i)).ok(200, nil)
	}
	seen := map[string]int64{}
	id, opts := "", []func(*http.Request){}
	for len(seen) < total {
		tl, _ := n.tail("/v1/topics/orders/stream?offset=earliest", opts...)
		for range min(7, total-len(seen)) { // the connection breaks after a few events
			e, p, offset, text := tl.record()
			if _, twice := seen[text]; twice {
				t.Fatalf("record %s came twice", text)
			}
			for other := range seen { // in order within the partition
				var o int64
				fmt.Sscan(other, &o)
				if o%3 == p && seen[other] > offset {
					t.Fatalf("offset %d of partition %d after %d", offset, p, seen[other])
				}
			}
			seen[text], id = offset, e.id
		}
		tl.cancel()
		opts = []func(*http.Request){header("Last-Event-ID", id)}
	}
}

func TestStreamLatestStandsWhereItBegan(t *testing.T) {
	// A client that reconnects before its first event must not lose what came meanwhile.
	n := start(t, nil)
	n.fill("orders", 2)
	tl, first := n.tail("/v1/topics/orders/stream")
	tl.cancel()
	n.fill("orders", 1)
	again, _ := n.tail("/v1/topics/orders/stream", header("Last-Event-ID", first.id))
	if _, _, offset, _ := again.record(); offset != 2 {
		t.Errorf("resumed with offset %d", offset)
	}
}

func TestStreamOfOnePartition(t *testing.T) {
	n := start(t, nil)
	n.f.topic("orders", func(c *api.TopicConfig) { c.Partitions = 3 })
	for p := range 3 {
		for range 2 {
			n.call("POST", "/v1/topics/orders/records", fmt.Sprintf(`{"records":[{"partition":%d,"text":"x"}]}`, p)).ok(200, nil)
		}
	}
	tl, first := n.tail("/v1/topics/orders/stream?partition=2&offset=1")
	e, p, offset, _ := tl.record()
	if first.id != "2:1" || p != 2 || offset != 1 || e.id != "2:2" {
		t.Errorf("%+v, then %+v", first, e)
	}
}

func TestStreamKeepsTextOfValues(t *testing.T) {
	n := start(t, nil)
	n.f.topic("orders", func(c *api.TopicConfig) { c.Partitions = 1 })
	n.call("POST", "/v1/topics/orders/records", "{\"records\":[{\"value\":{\n\"a\": 12345678901234567890,\r\n\r\"b\": 1.50}}]}").ok(200, nil)
	tl, _ := n.tail("/v1/topics/orders/stream?offset=earliest")
	e := tl.next()
	if !json.Valid([]byte(e.data)) || !strings.Contains(e.data, "12345678901234567890") || !strings.Contains(e.data, "1.50") {
		t.Errorf("data %q", e.data)
	}
}

func TestStreamFollowsNewPartitions(t *testing.T) {
	clock := clockwork.NewFakeClockAt(time.Now())
	n := start(t, func(o *Options) { o.Clock = clock })
	n.f.topic("orders", func(c *api.TopicConfig) { c.Partitions = 1 })
	tl, _ := n.tail("/v1/topics/orders/stream")
	n.f.topic("orders", func(c *api.TopicConfig) { c.Partitions = 3 })
	n.call("POST", "/v1/topics/orders/records", `{"records":[{"partition":2,"text":"new"}]}`).ok(200, nil)
	clock.Advance(growthCheck)
	if e, p, _, text := tl.record(); p != 2 || text != "new" || e.id != "0:0x2,1" {
		t.Errorf("%+v", e)
	}
}

func TestStreamHeartbeat(t *testing.T) {
	clock := clockwork.NewFakeClockAt(time.Now())
	n := start(t, func(o *Options) { o.Clock = clock })
	n.fill("orders", 0)
	tl, _ := n.tail("/v1/topics/orders/stream")
	for range 14 {
		if err := clock.BlockUntilContext(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		clock.Advance(time.Second)
	}
	select {
	case e := <-tl.events:
		t.Fatalf("%+v before its time", e)
	default:
	}
	// Ticks that the handler was too slow to take are dropped, so the clock goes on until the comment is there.
	for deadline := time.Now().Add(10 * time.Second); ; clock.Advance(time.Second) {
		select {
		case e := <-tl.events:
			if !e.comment {
				t.Errorf("%+v, want a comment", e)
			}
			return
		case <-time.After(time.Millisecond):
			if time.Now().After(deadline) {
				t.Fatal("no heartbeat")
			}
		}
	}
}

func TestStreamEndsWithAProblem(t *testing.T) {
	n := start(t, nil)
	n.fill("orders", 1)
	for _, c := range []struct {
		err  error
		code string
	}{
		{api.Errorf(api.CodeStorageUnavailable, "slow"), "STORAGE_UNAVAILABLE"},
		{errors.New("secret"), "INTERNAL"},
	} {
		n.f.failWith("ReadWait", c.err)
		tl, _ := n.tail("/v1/topics/orders/stream")
		e := tl.next()
		var p problem
		if err := json.Unmarshal([]byte(e.data), &p); err != nil || e.name != "problem" || p.Code != c.code || strings.Contains(e.data, "secret") {
			t.Errorf("%+v: %v", e, err)
		}
		if _, more := <-tl.events; more {
			t.Error("the stream goes on after a problem")
		}
	}
	n.f.failWith("ReadWait", nil)
	tl, _ := n.tail("/v1/topics/orders/stream")
	n.call("DELETE", "/v1/topics/orders", "").ok(204, nil)
	if e := tl.next(); e.name != "problem" || !strings.Contains(e.data, "UNKNOWN_TOPIC") {
		t.Errorf("deleted: %+v", e)
	}
}

func TestStreamEndsAtShutdown(t *testing.T) {
	n := start(t, nil)
	n.fill("orders", 1)
	tl, _ := n.tail("/v1/topics/orders/stream")
	poll := make(chan *answer, 1)
	waiting := make(chan struct{}, 8)
	n.f.onCall("ReadWait", func() { waiting <- struct{}{} })
	go func() { poll <- n.call("GET", "/v1/topics/orders/partitions/0/records?offset=latest&wait=30s", "") }()
	<-waiting
	begin := time.Now()
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("stopped after %s", took)
	}
	if e := tl.next(); !e.comment {
		t.Errorf("%+v, want a comment", e)
	}
	if _, more := <-tl.events; more {
		t.Error("the stream goes on")
	}
	(<-poll).ok(200, nil)
}

func TestStreamRefusals(t *testing.T) {
	n := start(t, func(o *Options) { o.Limits.MaxStreamPartition, o.Limits.MaxFollowed = 4, 5 })
	n.fill("orders", 3)
	n.f.trim(n.f.truth[tenantA+"/orders"].ID, 0, 1)
	n.f.topic("wide", func(c *api.TopicConfig) { c.Partitions = 5 })
	n.f.topic("four", func(c *api.TopicConfig) { c.Partitions = 4 })
	n.f.topic("there", func(c *api.TopicConfig) { c.Residency = "us" })
	get := func(path string, opts ...func(*http.Request)) *answer { return n.call("GET", path, "", opts...) }
	for _, path := range []string{
		"/v1/topics/__x/stream", "/v1/topics/orders/stream?offset=1", "/v1/topics/orders/stream?offset=x&partition=0", "/v1/topics/orders/stream?partition=-1",
		"/v1/topics/orders/stream?partition=x", "/v1/topics/orders/stream?from=1", "/v1/topics/wide/stream",
	} {
		get(path).problem(400, "INVALID_REQUEST")
	}
	for _, id := range []string{"x", "1:0", "0:0,0", "0:1x2"} {
		get("/v1/topics/orders/stream", header("Last-Event-ID", id)).problem(400, "INVALID_REQUEST")
	}
	get("/v1/topics/orders/stream", func(r *http.Request) { r.Header["Last-Event-Id"] = []string{"0:1", "0:2"} }).problem(400, "INVALID_REQUEST")
	get("/v1/topics/missing/stream").problem(404, "UNKNOWN_TOPIC")
	get("/v1/topics/orders/stream?partition=1").problem(404, "UNKNOWN_PARTITION")
	get("/v1/topics/there/stream").problem(403, "RESIDENCY_VIOLATION")
	get("/v1/topics/orders/stream", token(tenantA+"/publish")).problem(403, "FORBIDDEN")
	get("/v1/topics/orders/stream", header("Authorization", "")).problem(401, "UNAUTHENTICATED")
	for _, id := range []string{"0:0", "0:4"} { // never a silent jump
		p := get("/v1/topics/orders/stream", header("Last-Event-ID", id)).problem(416, "OFFSET_OUT_OF_RANGE")
		if p.LogStart == nil || *p.LogStart != 1 || p.Head == nil || *p.Head != 3 {
			t.Errorf("%s: %+v", id, p)
		}
	}
	tl, _ := n.tail("/v1/topics/four/stream")
	tl2, _ := n.tail("/v1/topics/orders/stream")
	get("/v1/topics/orders/stream").problem(503, "OVERLOADED")
	tl.cancel()
	tl2.cancel()
	n.inFlight.wait()
	if used := n.followed.used.Load(); used != 0 {
		t.Errorf("%d partitions are followed for nobody", used)
	}
	n.f.failWith("Sync", api.Errorf(api.CodeMetadataUnavailable, "no quorum"))
	get("/v1/topics/orders/stream").problem(503, "METADATA_UNAVAILABLE")
}

func TestStreamOfManyPartitionsNamesPlacesByPage(t *testing.T) {
	n := start(t, nil)
	n.f.topic("wide", func(c *api.TopicConfig) { c.Partitions = denseIDs + 1 })
	n.call("POST", "/v1/topics/wide/records", `{"records":[{"partition":0,"text":"a"},{"partition":0,"text":"b"}]}`).ok(200, nil)
	tl, _ := n.tail("/v1/topics/wide/stream?offset=earliest")
	a, _, _, _ := tl.record()
	b, _, _, _ := tl.record()
	if a.id != "" || b.id != "0:2,0x64" {
		t.Errorf("ids %q and %q", a.id, b.id)
	}
}
