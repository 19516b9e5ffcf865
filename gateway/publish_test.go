package gateway

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/forebaymq/forebay/api"
	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
	"github.com/forebaymq/forebay/gateway/wire"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

type published struct {
	Records   []struct{ Partition, Offset int64 }
	Topics    map[string]published
	Duplicate *bool
}

func TestPublishByKeyPartitionAndTurn(t *testing.T) {
	n := start(t, nil)
	n.f.topic("orders", nil)
	var got published
	n.call("POST", "/v1/topics/orders/records", `{"records":[{"key":"k1","value":1},{"key":"k1","value":2},{"partition":5,"text":"x"},{"text":"a"},{"text":"b"}]}`).ok(200, &got)
	if len(got.Records) != 5 || got.Duplicate == nil || *got.Duplicate {
		t.Fatalf("%+v", got)
	}
	want := int64(api.PartitionForKey([]byte("k1"), 8))
	if got.Records[0].Partition != want || got.Records[1].Partition != want || got.Records[1].Offset != got.Records[0].Offset+1 {
		t.Errorf("by key: %+v, want partition %d", got.Records[:2], want)
	}
	if got.Records[2].Partition != 5 {
		t.Errorf("explicit partition: %+v", got.Records[2])
	}
	if got.Records[3].Partition != got.Records[4].Partition {
		t.Errorf("keyless records of one request parted: %+v", got.Records[3:])
	}
	seen := map[int64]bool{}
	for range 8 {
		n.call("POST", "/v1/topics/orders/records", `{"records":[{"text":"a"}]}`).ok(200, &got)
		seen[got.Records[0].Partition] = true
	}
	if len(seen) != 8 {
		t.Errorf("8 keyless requests met %d of 8 partitions", len(seen))
	}
}

func TestPublishKeylessRetryFindsItsPartition(t *testing.T) {
	// I1: the retry may arrive on another node, whose turn is at another partition.
	a, b := start(t, nil), start(t, nil)
	seen := map[int64]bool{}
	for seq := range 40 {
		body := fmt.Sprintf(`{"records":[{"text":"x"}],"producer":{"id":"p","epoch":1,"sequence":%d}}`, seq*10)
		var first, second published
		for _, n := range []*node{a, b} {
			n.f.topic("orders", nil)
		}
		a.call("POST", "/v1/topics/orders/records", body).ok(200, &first)
		b.call("POST", "/v1/topics/orders/records", `{"records":[{"text":"turn"}]}`).ok(200, nil)
		b.call("POST", "/v1/topics/orders/records", body).ok(200, &second)
		if first.Records[0].Partition != second.Records[0].Partition {
			t.Fatalf("sequence %d: partition %d, then %d", seq, first.Records[0].Partition, second.Records[0].Partition)
		}
		seen[first.Records[0].Partition] = true
	}
	if len(seen) != 8 {
		t.Errorf("40 sequences met %d of 8 partitions", len(seen))
	}
	p := a.f.requests()[0].Producer
	if p == nil || *p != (metadata.Producer{ID: "p", Epoch: 1, Sequence: 0}) {
		t.Errorf("producer %+v", p)
	}
}

func TestPublishTopicsIsOneRequest(t *testing.T) {
	n := start(t, nil)
	n.f.topic("a", nil)
	n.f.elsewhere(tenantA, "b", nil)
	var got published
	n.call("POST", "/v1/records", `{"topics":{"b":{"records":[{"key":"k","value":{}}]},"a":{"records":[{"key":"k","text":"1"},{"key":"k"}]}}}`).ok(200, &got)
	if len(got.Topics) != 2 || len(got.Topics["a"].Records) != 2 || len(got.Topics["b"].Records) != 1 {
		t.Fatalf("%+v", got)
	}
	if r := n.f.requests(); len(r) != 1 || len(r[0].Topics) != 2 || r[0].Tenant != tenantA {
		t.Errorf("ingest saw %d requests", len(r))
	}
	n.call("POST", "/v1/records", `{"topics":{"a":{"records":[{"text":"x"}]},"missing":{"records":[{"text":"x"}]}}}`).problem(404, "UNKNOWN_TOPIC")
	if len(n.f.requests()) != 1 {
		t.Error("a part of a refused request was stored")
	}
}

func TestPublishProtobuf(t *testing.T) {
	n := start(t, nil)
	n.f.topic("orders", nil)
	body, err := proto.Marshal(&forebayv1.PublishRequest{Records: []*forebayv1.Record{{Key: []byte("k"), Value: []byte{0, 255}}, {Key: []byte("k")}}})
	if err != nil {
		t.Fatal(err)
	}
	post := func(accept string) *answer {
		return n.call("POST", "/v1/topics/orders/records", string(body), header("Content-Type", "application/x-protobuf"), header("Accept", accept))
	}
	a := post("").ok(200, nil)
	if ct := a.header.Get("Content-Type"); ct != "application/x-protobuf" {
		t.Fatalf("a protobuf request without Accept is answered in %s", ct)
	}
	var res forebayv1.PublishResponse
	if err := proto.Unmarshal(a.body, &res); err != nil || len(res.Records) != 2 {
		t.Fatalf("%v, %v", &res, err)
	}
	var js published
	post("application/json").ok(200, &js)
	if len(js.Records) != 2 {
		t.Errorf("%+v", js)
	}
	post("image/png").problem(415, "UNSUPPORTED_MEDIA_TYPE")
	recs := n.f.requests()[0].Topics[0].Records
	if !bytes.Equal(recs[0].Value, []byte{0, 255}) || recs[1].Value != nil || recs[1].Kind != segment.KindNone {
		t.Errorf("records %+v", recs)
	}
}

func TestPublishCompressed(t *testing.T) {
	n := start(t, func(o *Options) { o.Limits.MaxRequestBytes = 64 << 10 })
	n.f.topic("orders", nil)
	zip := func(s string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(s))
		_ = w.Close()
		return b.String()
	}
	gz := header("Content-Encoding", "gzip")
	n.call("POST", "/v1/topics/orders/records", zip(`{"records":[{"text":"x"}]}`), gz).ok(200, nil)
	// H2: the limit counts the decoded bytes.
	n.call("POST", "/v1/topics/orders/records", zip(`{"records":[{"text":"`+strings.Repeat("x", 64<<10)+`"}]}`), gz).problem(413, "TOO_LARGE")
	n.call("POST", "/v1/topics/orders/records", zip(zip(`{"records":[{"text":"x"}]}`)), gz).problem(400, "INVALID_REQUEST")
	n.call("POST", "/v1/topics/orders/records", "no gzip", gz).problem(400, "INVALID_REQUEST")
	if used := n.bodies.used.Load(); used != 0 {
		t.Errorf("%d bytes of the budget are not given back", used)
	}
}

func TestPublishLimitsAtTheEdge(t *testing.T) {
	n := start(t, func(o *Options) { o.Limits.MaxRequestBytes = 1 << 10 })
	n.f.topic("orders", nil)
	exact := `{"records":[{"text":"` + strings.Repeat("x", 1<<10-25) + `"}]}`
	exact += strings.Repeat(" ", 1<<10-len(exact))
	for _, chunked := range []bool{false, true} {
		opt := func(r *http.Request) {
			if chunked {
				r.ContentLength = -1
			}
		}
		n.call("POST", "/v1/topics/orders/records", exact, opt).ok(200, nil)
		n.call("POST", "/v1/topics/orders/records", exact+" ", opt).problem(413, "TOO_LARGE")
	}
}

func TestPublishAgainstTheTopic(t *testing.T) {
	n := start(t, nil)
	n.f.topic("small", func(c *api.TopicConfig) { c.MaxRecordBytes = 10 })
	n.f.topic("compacted", func(c *api.TopicConfig) { c.Cleanup = api.CleanupCompact })
	n.f.topic("here", func(c *api.TopicConfig) { c.Residency = "eu" })
	n.f.topic("there", func(c *api.TopicConfig) { c.Residency = "us" })
	n.f.topic("plain", nil)
	for _, c := range []struct {
		topic, body string
		status      int
		code        string
	}{
		{"small", `{"records":[{"key":"12345","text":"12345"}]}`, 200, ""},
		{"small", `{"records":[{"text":"a"},{"key":"12345","text":"123456"}]}`, 413, "TOO_LARGE"},
		{"small", `{"records":[{"key":"12345","text":"1234","headers":[["a","b"]]}]}`, 413, "TOO_LARGE"},
		{"compacted", `{"records":[{"key":"","value":1}]}`, 200, ""},
		{"compacted", `{"records":[{"key":"a","value":1},{"value":2}]}`, 400, "INVALID_REQUEST"},
		{"here", `{"records":[{"text":"a"}]}`, 200, ""},
		{"there", `{"records":[{"text":"a"}]}`, 403, "RESIDENCY_VIOLATION"},
		{"plain", `{"records":[{"partition":7,"text":"a"}]}`, 200, ""},
		{"plain", `{"records":[{"partition":8,"text":"a"}]}`, 404, "UNKNOWN_PARTITION"},
		{"plain", `{"records":[]}`, 400, "INVALID_REQUEST"},
		{"plain", ``, 400, "INVALID_REQUEST"},
		{"plain", `{"records":[{"text":"a"}]} `, 200, ""},
		{"plain", `{"records":[{"text":"a"}]}x`, 400, "INVALID_REQUEST"},
		{"plain", "{\"records\":[{\"text\":\"\xff\"}]}", 400, "INVALID_REQUEST"},
		{"plain", `{"records":[{"text":"\ud800"}]}`, 400, "INVALID_REQUEST"},
		{"missing", `{"records":[{"text":"a"}]}`, 404, "UNKNOWN_TOPIC"},
		{"__x", `{"records":[{"text":"a"}]}`, 400, "INVALID_REQUEST"},
	} {
		before := len(n.f.requests())
		a := n.call("POST", "/v1/topics/"+c.topic+"/records", c.body)
		if c.code == "" {
			a.ok(c.status, nil)
			continue
		}
		a.problem(c.status, c.code)
		if len(n.f.requests()) != before {
			t.Errorf("%s %s: refused and stored", c.topic, c.body)
		}
	}
}

func TestPublishSeesWhatOthersDid(t *testing.T) {
	n := start(t, nil)
	n.f.elsewhere(tenantA, "orders", func(c *api.TopicConfig) { c.Partitions = 1 })
	n.call("POST", "/v1/topics/orders/records", `{"records":[{"text":"a"}]}`).ok(200, nil)
	syncs := n.f.count("Sync")
	n.call("POST", "/v1/topics/orders/records", `{"records":[{"text":"a"}]}`).ok(200, nil)
	if n.f.count("Sync") != syncs {
		t.Error("a topic that the view has costs a barrier")
	}
	n.f.elsewhere(tenantA, "orders", func(c *api.TopicConfig) { c.Partitions = 4 })
	n.call("POST", "/v1/topics/orders/records", `{"records":[{"partition":3,"text":"a"}]}`).ok(200, nil)

	// Deleted and made again elsewhere: this node's view has the ID of the old topic.
	n.f.drop(tenantA, "orders")
	again := n.f.elsewhere(tenantA, "orders", func(c *api.TopicConfig) { c.Partitions = 1 })
	n.call("POST", "/v1/topics/orders/records", `{"records":[{"text":"a"}]}`).ok(200, nil)
	reqs := n.f.requests()
	if id := reqs[len(reqs)-1].Topics[0].Topic.ID; id != again.ID {
		t.Errorf("stored in topic %d, want %d", id, again.ID)
	}
	n.f.drop(tenantA, "orders")
	n.call("POST", "/v1/topics/orders/records", `{"records":[{"text":"a"}]}`).problem(404, "UNKNOWN_TOPIC")
	n.f.failWith("Sync", api.Errorf(api.CodeMetadataUnavailable, "no quorum"))
	n.call("POST", "/v1/topics/orders/records", `{"records":[{"text":"a"}]}`).problem(503, "METADATA_UNAVAILABLE")
}

func TestPublishRefusals(t *testing.T) {
	n := start(t, nil)
	n.f.topic("orders", nil)
	for _, path := range []string{"/v1/topics/orders/records", "/v1/records"} {
		body := `{"records":[{"text":"a"}]}`
		if path == "/v1/records" {
			body = `{"topics":{"orders":` + body + `}}`
		}
		for _, c := range []struct {
			err    error
			status int
			code   string
		}{
			{api.Errorf(api.CodeProducerFenced, "a newer session"), 409, "PRODUCER_FENCED"},
			{api.Errorf(api.CodeConflict, "the sequence holds other records"), 409, "CONFLICT"},
			{api.Errorf(api.CodeQuotaExceeded, "tenant"), 429, "QUOTA_EXCEEDED"},
			{api.Errorf(api.CodeOverloaded, "node"), 503, "OVERLOADED"},
			{api.Errorf(api.CodeStorageUnavailable, "slow"), 503, "STORAGE_UNAVAILABLE"},
			{api.Errorf(api.CodeMetadataUnavailable, "no quorum"), 503, "METADATA_UNAVAILABLE"},
			{api.Errorf(api.CodeOutcomeUnknown, "the deadline"), 504, "OUTCOME_UNKNOWN"},
			{api.Errorf(api.CodeUnknownPartition, "gone"), 404, "UNKNOWN_PARTITION"},
			{errors.New("secret: 10.0.0.7"), 500, "INTERNAL"},
		} {
			n.f.failWith("Append", c.err)
			a := n.call("POST", path, body)
			a.problem(c.status, c.code)
			if bytes.Contains(a.body, []byte("10.0.0.7")) {
				t.Errorf("an inner error is shown: %s", a.body)
			}
		}
		n.f.failWith("Append", nil)
		n.call("POST", path, body, header("Authorization", "")).problem(401, "UNAUTHENTICATED")
		n.call("POST", path, body, token(tenantA+"/read")).problem(403, "FORBIDDEN")
		n.call("POST", path, body, header("Content-Type", "text/plain")).problem(415, "UNSUPPORTED_MEDIA_TYPE")
		n.call("POST", path+"?sync=1", body).problem(400, "INVALID_REQUEST")
	}
	if !strings.Contains(n.log.String(), "secret: 10.0.0.7") {
		t.Error("an inner error is not in the log")
	}
}

func TestPublishBodyBudget(t *testing.T) {
	n := start(t, func(o *Options) { o.Limits.MaxBodyBytes, o.Limits.MaxRequestBytes = 4<<10, 4<<10 })
	n.f.topic("orders", nil)
	body := `{"records":[{"text":"` + strings.Repeat("x", 3000) + `"}]}`
	inside, leave := make(chan struct{}), make(chan struct{})
	n.f.onCall("Append", func() { inside <- struct{}{}; <-leave })
	done := make(chan *answer)
	go func() { done <- n.call("POST", "/v1/topics/orders/records", body) }()
	<-inside
	n.call("POST", "/v1/topics/orders/records", body).problem(503, "OVERLOADED")
	n.f.onCall("Append", nil)
	close(leave)
	(<-done).ok(200, nil)
	n.call("POST", "/v1/topics/orders/records", body).ok(200, nil)
	if used := n.bodies.used.Load(); used != 0 {
		t.Errorf("%d bytes of the budget are not given back", used)
	}
}

func TestChoosePartitions(t *testing.T) {
	tr := &wire.TopicRecords{
		Records:    []segment.Record{{Key: []byte("a")}, {}, {Key: []byte{}}, {}},
		Partitions: []int32{-1, 2, -1, -1},
	}
	got := choosePartitions(tr, 3, 7)
	want := []int32{int32(api.PartitionForKey([]byte("a"), 3)), 2, int32(api.PartitionForKey(nil, 3)), 1}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
