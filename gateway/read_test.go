package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/forebaymq/forebay/api"
	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
)

type readJSON struct {
	Records []struct {
		Partition, Offset int64
		Time, Key, Text   string
	}
	NextOffset, Head, LogStart int64
}

// fill publishes count records to partition 0 of a topic with one partition.
func (n *node) fill(topic string, count int) {
	n.t.Helper()
	if n.f.truth[tenantA+"/"+topic] == nil {
		n.f.topic(topic, func(c *api.TopicConfig) { c.Partitions = 1 })
	}
	for i := range count {
		n.call("POST", "/v1/topics/"+topic+"/records", fmt.Sprintf(`{"records":[{"text":"r%d"}]}`, i)).ok(200, nil)
	}
}

func TestReadPages(t *testing.T) {
	n := start(t, nil)
	n.fill("orders", 5)
	var got readJSON
	n.call("GET", "/v1/topics/orders/partitions/0/records", "").ok(200, &got)
	if len(got.Records) != 5 || got.NextOffset != 5 || got.Head != 5 || got.Records[4].Text != "r4" {
		t.Fatalf("%+v", got)
	}
	for query, want := range map[string][2]int64{ // first offset (-1 = none), nextOffset
		"offset=2&limit=2":  {2, 4},
		"offset=earliest":   {0, 5},
		"offset=latest":     {-1, 5},
		"offset=5":          {-1, 5},
		"maxBytes=1":        {0, 1}, // L1: at least one record
		"offset=4&wait=0s":  {4, 5},
		"offset=4&wait=30s": {4, 5},
	} {
		got = readJSON{}
		n.call("GET", "/v1/topics/orders/partitions/0/records?"+query, "").ok(200, &got)
		first := int64(-1)
		if len(got.Records) > 0 {
			first = got.Records[0].Offset
		}
		if first != want[0] || got.NextOffset != want[1] {
			t.Errorf("%s: first %d, next %d, want %v", query, first, got.NextOffset, want)
		}
	}
	a := n.call("GET", "/v1/topics/orders/partitions/0/records", "", header("Accept", "application/x-protobuf")).ok(200, nil)
	var pb forebayv1.ReadResponse
	if err := proto.Unmarshal(a.body, &pb); err != nil || len(pb.Records) != 5 || pb.NextOffset != 5 {
		t.Errorf("protobuf: %v, %v", &pb, err)
	}
}

func TestReadOutOfRange(t *testing.T) {
	n := start(t, nil)
	n.fill("orders", 5)
	n.f.trim(n.f.truth[tenantA+"/orders"].ID, 0, 3)
	for _, offset := range []string{"2", "6"} {
		p := n.call("GET", "/v1/topics/orders/partitions/0/records?offset="+offset, "").problem(416, "OFFSET_OUT_OF_RANGE")
		if p.LogStart == nil || *p.LogStart != 3 || p.Head == nil || *p.Head != 5 {
			t.Errorf("offset %s: logStart %v, head %v", offset, p.LogStart, p.Head)
		}
	}
}

func TestReadByTime(t *testing.T) {
	n := start(t, nil)
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 3 {
		n.f.setNow(base.Add(time.Duration(i) * time.Second).UnixMilli())
		n.fill("orders", 1)
	}
	for ts, want := range map[string]string{
		"2026-01-02T03:04:05Z":           "0",
		"2026-01-02T03:04:05.000Z":       "0",
		"2026-01-02T03:04:05.0000001Z":   "1", // after the first, however little
		"2026-01-02T03:04:06Z":           "1",
		"2026-01-02T04:04:06%2B01:00":    "1",
		"2026-01-02T03:04:06.5Z":         "2",
		"2000-01-01T00:00:00Z":           "0",
		"2026-01-02T03:04:07.001Z":       "null",
		"9999-12-31T23:59:59.999999999Z": "null",
	} {
		a := n.call("GET", "/v1/topics/orders/partitions/0/offset?timestamp="+ts, "").ok(200, nil)
		if got := string(a.body); got != `{"offset":`+want+`}` {
			t.Errorf("%s: %s, want %s", ts, got, want)
		}
		var page readJSON
		n.call("GET", "/v1/topics/orders/partitions/0/records?timestamp="+ts, "").ok(200, &page)
		first := "null"
		if len(page.Records) > 0 {
			first = fmt.Sprint(page.Records[0].Offset)
		}
		if first != want {
			t.Errorf("read from %s begins at %s, want %s", ts, first, want)
		}
	}
}

func TestReadByTimeMissesNothing(t *testing.T) {
	// A record comes after the first look for the time and before the head is read.
	n := start(t, nil)
	n.fill("orders", 2)
	n.f.onCall("Read", func() {
		n.f.onCall("Read", nil)
		n.fill("orders", 1)
	})
	n.f.setNow(1_800_000_000_000)
	var page readJSON
	n.call("GET", "/v1/topics/orders/partitions/0/records?timestamp=2026-06-01T00:00:00Z", "").ok(200, &page)
	if len(page.Records) != 1 || page.Records[0].Offset != 2 {
		t.Errorf("%+v", page)
	}
}

func TestReadRefusals(t *testing.T) {
	n := start(t, nil)
	n.fill("orders", 1)
	n.f.topic("there", func(c *api.TopicConfig) { c.Residency = "us" })
	const base = "/v1/topics/orders/partitions/0/"
	for _, path := range []string{
		// H4: numbers are never rounded.
		"records?offset=1e3", "records?offset=1.5", "records?offset=-0", "records?offset=-1", `records?offset="5"`, "records?offset=05", "records?offset=%2B5",
		"records?offset=9223372036854775808", "records?offset=", "records?offset=Earliest", "records?limit=0", "records?limit=10001", "records?maxBytes=0",
		"records?maxBytes=16777217", "records?wait=31s", "records?wait=5", "records?wait=-1s", "records?timestamp=yesterday", "records?timestamp=2026-01-02T03:04:05+01:00",
		"records?offset=0&timestamp=2026-01-02T03:04:05Z", "records?offset=0&offset=0", "records?from=0",
		"offset", "offset?timestamp=", "offset?timestamp=1", "offset?timestamp=2026-01-02T03:04:05Z&x=1",
	} {
		n.call("GET", base+path, "").problem(400, "INVALID_REQUEST")
	}
	for path, want := range map[string]struct {
		status int
		code   string
	}{
		"/v1/topics/orders/partitions/1/records":          {404, "UNKNOWN_PARTITION"},
		"/v1/topics/orders/partitions/10000/records":      {404, "UNKNOWN_PARTITION"},
		"/v1/topics/orders/partitions/x/records":          {400, "INVALID_REQUEST"},
		"/v1/topics/orders/partitions/-1/records":         {400, "INVALID_REQUEST"},
		"/v1/topics/orders/partitions/00/records":         {400, "INVALID_REQUEST"},
		"/v1/topics/missing/partitions/0/records":         {404, "UNKNOWN_TOPIC"},
		"/v1/topics/there/partitions/0/records":           {403, "RESIDENCY_VIOLATION"},
		"/v1/topics/__x/partitions/0/records":             {400, "INVALID_REQUEST"},
		"/v1/topics/orders/partitions/1/offset?timestamp": {400, "INVALID_REQUEST"},
	} {
		n.call("GET", path, "").problem(want.status, want.code)
	}
	const ts = "?timestamp=2026-01-02T03:04:05Z"
	n.call("GET", "/v1/topics/there/partitions/0/offset"+ts, "").problem(403, "RESIDENCY_VIOLATION")
	n.call("GET", "/v1/topics/orders/partitions/1/offset"+ts, "").problem(404, "UNKNOWN_PARTITION")
	n.call("GET", base+"records", "", header("Accept", "text/csv")).problem(415, "UNSUPPORTED_MEDIA_TYPE")
	for _, path := range []string{"records", "offset" + ts} {
		n.call("GET", base+path, "", header("Authorization", "")).problem(401, "UNAUTHENTICATED")
		n.call("GET", base+path, "", token(tenantA+"/publish")).problem(403, "FORBIDDEN")
		n.call("GET", base+path, "", token(tenantB)).problem(404, "UNKNOWN_TOPIC")
		for _, c := range []struct {
			err    error
			status int
			code   string
		}{
			{api.Errorf(api.CodeStorageUnavailable, "slow"), 503, "STORAGE_UNAVAILABLE"},
			{api.Errorf(api.CodeMetadataUnavailable, "no quorum"), 503, "METADATA_UNAVAILABLE"},
			{api.Errorf(api.CodeOverloaded, "old reads"), 503, "OVERLOADED"},
			{context.DeadlineExceeded, 503, "METADATA_UNAVAILABLE"},
			{errors.New("bug"), 500, "INTERNAL"},
		} {
			n.f.failWith("Read", c.err)
			n.f.failWith("OffsetForTime", c.err)
			n.call("GET", base+path, "").problem(c.status, c.code)
		}
		n.f.failWith("Read", nil)
		n.f.failWith("OffsetForTime", nil)
	}
}

func TestReadSeesWhatOthersDid(t *testing.T) {
	n := start(t, nil)
	n.f.elsewhere(tenantA, "orders", func(c *api.TopicConfig) { c.Partitions = 1 })
	n.call("GET", "/v1/topics/orders/partitions/0/records", "").ok(200, nil)
	n.f.elsewhere(tenantA, "orders", func(c *api.TopicConfig) { c.Partitions = 3 })
	n.call("GET", "/v1/topics/orders/partitions/2/records", "").ok(200, nil)
	n.f.drop(tenantA, "orders")
	n.f.elsewhere(tenantA, "orders", func(c *api.TopicConfig) { c.Partitions = 3 })
	n.call("GET", "/v1/topics/orders/partitions/2/records", "").ok(200, nil)
	n.f.drop(tenantA, "orders")
	n.call("GET", "/v1/topics/orders/partitions/2/records", "").problem(404, "UNKNOWN_TOPIC")
}

func TestLongPollWakes(t *testing.T) {
	n := start(t, nil)
	n.fill("orders", 1)
	waiting := make(chan struct{}, 1)
	n.f.onCall("ReadWait", func() { waiting <- struct{}{} })
	done := make(chan *answer, 1)
	go func() { done <- n.call("GET", "/v1/topics/orders/partitions/0/records?offset=1&wait=30s", "") }()
	<-waiting
	n.fill("orders", 1)
	var got readJSON
	(<-done).ok(200, &got)
	if len(got.Records) != 1 || got.Records[0].Offset != 1 {
		t.Errorf("%+v", got)
	}
}

func TestLongPollEndsByItself(t *testing.T) {
	// Without a network, so that time can be of the bubble: a poll of 30 s is answered after 30 s, with what there is.
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		s, err := New(testOptions(f, &logBuffer{}))
		if err != nil {
			t.Fatal(err)
		}
		s.drain = t.Context()
		f.topic("orders", nil)
		rec := newRecorder()
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "/v1/topics/orders/partitions/0/records?wait=30s", nil)
		req.Header.Set("Authorization", "Bearer "+tenantA)
		begin := time.Now()
		s.echo.ServeHTTP(rec, req)
		if took := time.Since(begin); rec.status != 200 || took != 30*time.Second {
			t.Errorf("status %d after %s", rec.status, took)
		}
	})
}

func TestLongPollOfAClientThatLeftEndsAtOnce(t *testing.T) {
	n := start(t, nil)
	n.fill("orders", 1)
	waiting := make(chan struct{}, 1)
	n.f.onCall("ReadWait", func() { waiting <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+n.Addr()+"/v1/topics/orders/partitions/0/records?offset=latest&wait=30s", nil)
	req.Header.Set("Authorization", "Bearer "+tenantA)
	done := make(chan error, 1)
	go func() {
		_, err := n.hc.Do(req)
		done <- err
	}()
	<-waiting
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("the client got %v", err)
	}
	n.inFlight.wait() // would last 30 s
	if m := string(n.ops("GET", "/metrics").body); !strings.Contains(m, `code="CLIENT_GONE"`) || strings.Contains(m, `code="INTERNAL"`) {
		t.Error("a client that left is counted as a fault of the node")
	}
}

// Answers that clients do not take up stay in memory: together they are bounded, and small ones always go.
func TestAnswerBudget(t *testing.T) {
	n := start(t, func(o *Options) { o.Limits.MaxAnswerBytes = 150 << 10 })
	n.f.topic("orders", func(c *api.TopicConfig) { c.Partitions = 1 })
	body := `{"records":[{"text":"` + strings.Repeat("x", 100<<10) + `"}]}`
	n.call("POST", "/v1/topics/orders/records", body).ok(200, nil)
	read := "/v1/topics/orders/partitions/0/records?offset=0"
	n.call("GET", read, "").ok(200, nil)
	n.answers.force(100 << 10) // as if another client did not take up its answer
	p := n.call("GET", read, "")
	p.problem(503, "OVERLOADED")
	n.call("GET", "/v1/topics/orders", "").ok(200, nil)
	n.answers.force(-100 << 10)
	n.call("GET", read, "").ok(200, nil)
	if err := n.Stop(t.Context()); err != nil { // an answer is given back just after its client has it
		t.Fatal(err)
	}
	if used := n.answers.used.Load(); used != 0 {
		t.Errorf("%d bytes of the budget are not given back", used)
	}
}
