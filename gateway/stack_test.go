package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/ingest"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore/mem"
)

var (
	_ Topics          = (*metadata.Log)(nil)
	_ Producers       = (*metadata.Log)(nil)
	_ Health          = (*metadata.Log)(nil)
	_ ingest.Appender = (*ingest.Ingester)(nil)
	_ fetch.Reader    = (*fetch.Fetcher)(nil)
)

// stack is a fabric of real nodes over a store and a metadata log in memory.
type stack struct {
	nodes []*node
}

func newStack(t *testing.T, count int) *stack {
	t.Helper()
	store := mem.New(mem.Options{})
	driver := metadata.NewMemDriver(metadata.MemOptions{})
	t.Cleanup(func() { _ = driver.Close(); _ = store.Close() })
	key := []byte(strings.Repeat("k", 32))
	st := &stack{}
	for i := range count {
		d := driver
		if i > 0 {
			d = driver.Peer()
			t.Cleanup(func() { _ = d.Close() })
		}
		log, err := metadata.Open(t.Context(), metadata.Options{Driver: d, Store: store, NodeID: fmt.Sprint("n", i)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = log.Close() })
		reader, err := fetch.New(fetch.Options{View: log, Store: store})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = reader.Close() })
		appender, err := ingest.New(ingest.Options{Store: store, Committer: log, Sink: reader, Linger: 2 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = appender.Close(ctx)
		})
		verifier, err := auth.NewVerifier(auth.Options{Issuers: []auth.Issuer{auth.DevIssuer(key)}, Development: true})
		if err != nil {
			t.Fatal(err)
		}
		n := start(t, func(o *Options) {
			o.Appender, o.Reader, o.Topics, o.Producers, o.Health, o.Authenticator = appender, reader, log, log, log, verifier
		})
		n.hc = &http.Client{Transport: &bearer{next: n.hc.Transport, token: devToken(t, key)}}
		st.nodes = append(st.nodes, n)
	}
	return st
}

// bearer replaces the token of the fakes by a real one.
type bearer struct {
	next  http.RoundTripper
	token string
}

func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

func devToken(t *testing.T, key []byte) string {
	t.Helper()
	token, err := auth.SignDev(key, auth.Claims{Tenant: "demo", Subject: "tester", Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestStackPublishAndRead(t *testing.T) {
	st := newStack(t, 2)
	a, b := st.nodes[0], st.nodes[1]
	a.call("GET", "/readyz", "").ok(200, nil)
	a.call("PUT", "/v1/topics/orders", `{"partitions":4}`).ok(201, nil)

	// What one node acknowledged, the other shows in the very next read.
	for i := range 20 {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		body := fmt.Sprintf(`{"records":[{"key":"k%d","value":{"n": 1234567890123456789%d,"f":1.50}},{"key":"k%d","text":"é\n"},{"keyBase64":"AP8=","data":"AAH/"},{"key":"","headers":[["a","1"],["a","2"]],"id":"e%d"}]}`, i, i, i, i)
		var got published
		from.call("POST", "/v1/topics/orders/records", body).ok(200, &got)
		for j, r := range got.Records {
			var page struct{ Records []json.RawMessage }
			to.call("GET", fmt.Sprintf("/v1/topics/orders/partitions/%d/records?offset=%d&limit=1", r.Partition, r.Offset), "").ok(200, &page)
			if len(page.Records) != 1 {
				t.Fatalf("record %d of round %d is not there", j, i)
			}
			want := []string{fmt.Sprintf(`"value":{"n": 1234567890123456789%d,"f":1.50}`, i), `"text":"é\n"`, `"keyBase64":"AP8=","data":"AAH/"`, `"key":"","headers":[["a","1"],["a","2"]],"id":"e` + fmt.Sprint(i) + `"`}[j]
			if !strings.Contains(string(page.Records[0]), want) {
				t.Fatalf("%s has no %s", page.Records[0], want)
			}
		}
	}
	var topic topicJSON
	b.call("GET", "/v1/topics/orders", "").ok(200, &topic)
	total := int64(0)
	for _, p := range topic.PartitionInfo {
		total += p.Head
	}
	if total != 80 {
		t.Errorf("heads add up to %d, want 80", total)
	}
	b.call("GET", "/v1/topics/orders/partitions/0/records?offset=100000", "").problem(416, "OFFSET_OUT_OF_RANGE")
}

func TestStackIdempotence(t *testing.T) {
	st := newStack(t, 2)
	a, b := st.nodes[0], st.nodes[1]
	a.call("PUT", "/v1/topics/orders", "").ok(201, nil)
	b.call("PUT", "/v1/topics/other", "").ok(201, nil)
	var session struct{ Epoch int64 }
	a.call("POST", "/v1/producers/loader", "").ok(200, &session)
	request := func(seq int) string {
		return fmt.Sprintf(`{"topics":{"orders":{"records":[{"key":"a","text":"%d"},{"text":"keyless"}]},"other":{"records":[{"key":"b","text":"%d"}]}},"producer":{"id":"loader","epoch":%d,"sequence":%d}}`, seq, seq, session.Epoch, seq)
	}
	var first, retry published
	first1 := a.call("POST", "/v1/records", request(10)).ok(200, &first)
	retry1 := b.call("POST", "/v1/records", request(10)).ok(200, &retry) // I1: on another node
	if *first.Duplicate || !*retry.Duplicate {
		t.Errorf("duplicate: %v, then %v", *first.Duplicate, *retry.Duplicate)
	}
	if strings.Replace(string(retry1.body), `"duplicate":true`, `"duplicate":false`, 1) != string(first1.body) {
		t.Errorf("the retry is answered %s, first %s", retry1.body, first1.body)
	}
	b.call("POST", "/v1/records", request(11)).ok(200, nil)
	var positions struct {
		Partitions []struct {
			Topic     string
			Partition int
			Sequence  int
		}
	}
	a.call("GET", "/v1/producers/loader", "").ok(200, &positions)
	if len(positions.Partitions) < 2 {
		t.Fatalf("%+v", positions)
	}
	highest := 0
	for _, p := range positions.Partitions {
		highest = max(highest, p.Sequence)
	}
	if highest != 11 {
		t.Errorf("positions %+v", positions)
	}
	b.call("POST", "/v1/producers/loader", "").ok(200, nil)
	a.call("POST", "/v1/records", request(12)).problem(409, "PRODUCER_FENCED")
}

func TestStackLongPollAndStreamAcrossNodes(t *testing.T) {
	st := newStack(t, 2)
	a, b := st.nodes[0], st.nodes[1]
	a.call("PUT", "/v1/topics/orders", `{"partitions":2}`).ok(201, nil)
	tl, _ := b.tail("/v1/topics/orders/stream")
	done := make(chan *answer, 1)
	go func() { done <- b.call("GET", "/v1/topics/orders/partitions/1/records?offset=0&wait=20s", "") }()
	for i := range 3 {
		a.call("POST", "/v1/topics/orders/records", fmt.Sprintf(`{"records":[{"partition":1,"text":"m%d"}]}`, i)).ok(200, nil)
	}
	var id string
	for i := range 3 {
		e, p, offset, text := tl.record()
		if p != 1 || offset != int64(i) || text != fmt.Sprint("m", i) {
			t.Fatalf("%+v", e)
		}
		if i == 0 {
			id = e.id
		}
	}
	tl.cancel()
	// The poll may have begun after the first records; its answer is in order and right whenever it did.
	var page readJSON
	a.call("POST", "/v1/topics/orders/records", `{"records":[{"partition":1,"text":"m3"}]}`).ok(200, nil)
	(<-done).ok(200, &page)
	if len(page.Records) == 0 || page.Records[0].Text != fmt.Sprint("m", page.Records[0].Offset) {
		t.Errorf("%+v", page)
	}
	again, _ := a.tail("/v1/topics/orders/stream", header("Last-Event-ID", id)) // resumed on another node
	if _, _, offset, _ := again.record(); offset != 1 {
		t.Errorf("resumed at %d", offset)
	}
}

func TestStackTopicLifeAcrossNodes(t *testing.T) {
	st := newStack(t, 2)
	a, b := st.nodes[0], st.nodes[1]
	for range 5 {
		a.call("PUT", "/v1/topics/orders", `{"partitions":1}`).ok(201, nil)
		b.call("POST", "/v1/topics/orders/records", `{"records":[{"text":"x"}]}`).ok(200, nil)
		b.call("PUT", "/v1/topics/orders", `{"partitions":3,"acknowledgeKeyRemap":true}`).ok(200, nil)
		var got published
		a.call("POST", "/v1/topics/orders/records", `{"records":[{"partition":2,"text":"x"}]}`).ok(200, &got)
		if got.Records[0].Offset != 0 {
			t.Fatalf("a topic made again remembers: %+v", got)
		}
		b.call("GET", "/v1/topics/orders/partitions/2/records", "").ok(200, nil)
		b.call("DELETE", "/v1/topics/orders", "").ok(204, nil)
		a.call("GET", "/v1/topics/orders/partitions/2/records", "").problem(404, "UNKNOWN_TOPIC")
		a.call("POST", "/v1/topics/orders/records", `{"records":[{"text":"x"}]}`).problem(404, "UNKNOWN_TOPIC")
	}
	var page topicPage
	b.call("GET", "/v1/topics", "").ok(200, &page)
	if len(page.Items) != 0 {
		t.Errorf("%+v", page.Items)
	}
}

func BenchmarkPublishOverHTTP(b *testing.B) {
	f := newFabric()
	o := testOptions(f, io.Discard)
	o.Logger = nil
	s, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	f.topic("orders", nil)
	body := `{"records":[{"key":"k","value":{"a":1}}]}`
	b.ReportAllocs()
	for b.Loop() {
		f.appended = nil
		rec := newRecorder()
		req, _ := http.NewRequest("POST", "/v1/topics/orders/records", strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+tenantA)
		s.echo.ServeHTTP(rec, req)
		if rec.status != 200 {
			b.Fatal(rec.body.String())
		}
	}
}
