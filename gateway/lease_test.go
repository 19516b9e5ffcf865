package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/forebaymq/forebay/api"
	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
	"github.com/forebaymq/forebay/segment"
)

type leaseJSON struct {
	Messages []struct {
		Receipt, LeaseExpiresAt, Key, Text, Time string
		Value                                    any
		Partition, Offset, Attempt               int64
		Headers                                  [][2]string
		DueAt                                    *string
	}
	Clamped *struct {
		Max, MaxBytes    int64
		Wait, Visibility string
	}
}

func text(offset int64, s string) segment.Record {
	return segment.Record{
		Offset: offset, AppendTime: 1_700_000_000_000, ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Key: []byte("k"), Kind: segment.KindText, Value: []byte(s),
		Headers: []segment.Header{{Name: "a", Value: "1"}},
	}
}

func TestLease(t *testing.T) {
	n := worker(t, nil)
	n.call("POST", work+"/lease", "").ok(204, nil)
	n.call("POST", work+"/lease", "{}").ok(204, nil)
	n.q.offer("orders", "work", text(0, "a"), text(1, "b"), text(2, "c"))
	var got leaseJSON
	n.call("POST", work+"/lease", `{"max":2,"visibility":"60s","requestId":"r-1","maxBytes":1000,"wait":"0s"}`).ok(200, &got)
	if len(got.Messages) != 2 || got.Clamped != nil {
		t.Fatalf("%+v", got)
	}
	m := got.Messages[1]
	if m.Receipt != "0:1:n2" || m.Partition != 0 || m.Offset != 1 || m.Attempt != 1 || m.Text != "b" || m.Key != "k" || m.LeaseExpiresAt != "2023-11-14T22:13:50.000Z" ||
		m.Time != "2023-11-14T22:13:20.000Z" || len(m.Headers) != 1 {
		t.Errorf("%+v", m)
	}
	r := n.q.leases[2]
	if r.Max != 2 || r.Visibility != time.Minute || r.RequestID != "r-1" || r.MaxBytes != 1000 || r.Tenant != tenantA || r.Topic != "orders" || r.Subscription != "work" {
		t.Errorf("%+v", r)
	}
	if r := n.q.leases[0]; r.Max != 10 || r.Visibility != 0 || r.Wait != 0 || r.MaxBytes != 0 {
		t.Errorf("the defaults: %+v", r)
	}
}

func TestConsume(t *testing.T) {
	n := worker(t, nil)
	n.q.offer("orders", "work", text(0, "a"), text(1, "b"), text(2, "c"))
	var got leaseJSON
	a := n.call("GET", work+"/consume?wait=10s", "").ok(200, &got)
	if len(got.Messages) != 1 || a.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%+v, %v", got, a.header)
	}
	n.call("GET", work+"/consume?max=2&visibility=5s&requestId=r&maxBytes=9", "").ok(200, &got)
	if r := n.q.leases[1]; len(got.Messages) != 2 || r.Max != 2 || r.Visibility != 5*time.Second || r.RequestID != "r" || r.MaxBytes != 9 {
		t.Fatalf("%+v, %+v", got, r)
	}
	n.call("GET", work+"/consume?wait=10ms", "").ok(204, nil)
	for _, q := range []string{"max=0", "max=1e2", "max=-0", "max=x", "wait=10", "wait=-1s", "visibility=", "requestId=", "requestId=a%20b", "maxBytes=0", "max=1&max=1", "limit=3"} {
		n.call("GET", work+"/consume?"+q, "").problem(400, "INVALID_REQUEST")
	}
}

func TestLeaseSaysWhatWasClamped(t *testing.T) {
	n := worker(t, nil)
	n.q.offer("orders", "work", text(0, "a"), text(1, "b"))
	var got leaseJSON
	n.call("POST", work+"/lease", `{"max":5000,"wait":"10m","visibility":"3d","maxBytes":99999999999}`).ok(200, &got)
	if c := got.Clamped; c == nil || c.Max != 1000 || c.Wait != "30s" || c.Visibility != "12h" || c.MaxBytes != api.MaxReadBytes {
		t.Errorf("%+v", got.Clamped)
	}
	if r := n.q.leases[0]; r.Max != 1000 || r.Wait != 30*time.Second || r.Visibility != 12*time.Hour || r.MaxBytes != api.MaxReadBytes {
		t.Errorf("%+v", r)
	}
	a := n.call("GET", work+"/consume?visibility=0s&max=1001", "").ok(204, nil)
	if got := a.header.Get("Forebay-Clamped"); got != "max=1000, visibility=1s" {
		t.Errorf("without a body the header says %q", got)
	}
}

func TestLeaseRefused(t *testing.T) {
	n := worker(t, nil)
	for body, pointer := range map[string]string{
		`{"max":0}`:                   "/max",
		`{"max":1e2}`:                 "/max", // H4
		`{"max":1.5}`:                 "/max",
		`{"max":-0}`:                  "/max",
		`{"max":"5"}`:                 "/max",
		`{"max":9223372036854775808}`: "/max",
		`{"max":1,"max":2}`:           "/max",
		`{"wait":10}`:                 "/wait",
		`{"wait":"-1s"}`:              "/wait",
		`{"visibility":"soon"}`:       "/visibility",
		`{"requestId":""}`:            "/requestId",
		`{"requestId":"é"}`:           "/requestId",
		`{"requestId":null}`:          "/requestId",
		`{"maxBytes":0}`:              "/maxBytes",
		`{"limit":5}`:                 "/limit",
		`{} {}`:                       "",
		`[]`:                          "",
		"{\"requestId\":\"\xff\"}":    "/requestId",
	} {
		p := n.call("POST", work+"/lease", body).problem(400, "INVALID_REQUEST")
		if len(p.Errors) != 1 || p.Errors[0].Pointer != pointer {
			t.Errorf("%s: %+v, want the pointer %q", body, p.Errors, pointer)
		}
	}
	n.call("POST", work+"/lease", "", header("Accept", "text/html")).problem(415, "UNSUPPORTED_MEDIA_TYPE")
	n.call("POST", work+"/lease", "x", header("Content-Type", "text/plain")).problem(415, "UNSUPPORTED_MEDIA_TYPE")
	if len(n.q.leases) != 0 {
		t.Errorf("%d leases were asked for", len(n.q.leases))
	}
}

func protobuf(m proto.Message) (body string, opt func(*http.Request)) {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b), header("Content-Type", "application/x-protobuf")
}

func TestLeaseInProtobuf(t *testing.T) {
	n := worker(t, nil)
	n.q.offer("orders", "work", text(0, "a"), text(1, "b"))
	body, ct := protobuf(&forebayv1.LeaseRequest{Max: proto.Int32(2000), VisibilityMs: proto.Int64(5000), WaitMs: proto.Int64(10), RequestId: "r"})
	a := n.call("POST", work+"/lease", body, ct).ok(200, nil)
	var got forebayv1.LeaseResponse
	if err := proto.Unmarshal(a.body, &got); err != nil || a.header.Get("Content-Type") != "application/x-protobuf" {
		t.Fatalf("%v, %v", err, a.header)
	}
	if m := got.Messages[1]; len(got.Messages) != 2 || m.Receipt != "0:1:n2" || m.Attempt != 1 || m.LeaseExpiresAtMs != 1_700_000_030_000 || string(m.Record.Value) != "b" || m.Record.Offset != 1 ||
		got.Clamped.GetMax() != 1000 || got.Clamped.VisibilityMs != nil {
		t.Errorf("%v", &got)
	}
	if r := n.q.leases[0]; r.Visibility != 5*time.Second || r.Wait != 10*time.Millisecond || r.RequestID != "r" {
		t.Errorf("%+v", r)
	}
	for _, m := range []*forebayv1.LeaseRequest{{Max: proto.Int32(0)}, {Max: proto.Int32(-1)}, {WaitMs: proto.Int64(-1)}, {VisibilityMs: proto.Int64(-1)}, {RequestId: "a b"}, {MaxBytes: proto.Int64(-1)}} {
		body, ct := protobuf(m)
		n.call("POST", work+"/lease", body, ct).problem(400, "INVALID_REQUEST")
	}
}

func TestLongPollOfALeaseOutlivesTheTimeoutsOfItsConnection(t *testing.T) {
	// H3: as for a read. The body of the request must not leave its deadline behind.
	for _, proto := range []string{"HTTP/1", "HTTP/2"} {
		t.Run(proto, func(t *testing.T) {
			n := worker(t, func(o *Options) {
				o.Timeouts.Grace, o.Timeouts.ReadHeader, o.Timeouts.Idle = 100*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
			})
			if proto == "HTTP/2" {
				n.useH2()
			}
			time.AfterFunc(500*time.Millisecond, func() { n.q.offer("orders", "work", text(0, "a")) })
			var got leaseJSON
			n.call("POST", work+"/lease", `{"wait":"20s"}`).ok(200, &got)
			if len(got.Messages) != 1 {
				t.Errorf("%+v", got)
			}
			n.call("GET", work+"/consume?wait=300ms", "").ok(204, nil)
		})
	}
}

func TestNothingIsLeasedToTheDead(t *testing.T) {
	// H3, Q4: the client closes while it waits. What comes then goes to nobody, and to the next one that asks.
	for _, proto := range []string{"HTTP/1", "HTTP/2"} {
		t.Run(proto, func(t *testing.T) {
			n := worker(t, nil)
			if proto == "HTTP/2" {
				n.useH2()
			}
			waiting := make(chan struct{}, 100)
			n.f.onCall("Lease", func() { waiting <- struct{}{} })
			var wg sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			const dead = 50
			for i := range dead {
				method, path, body := "POST", work+"/lease", io.Reader(strings.NewReader(`{"wait":"30s"}`))
				if i%2 == 1 {
					method, path, body = "GET", work+"/consume?wait=30s", nil
				}
				req, err := http.NewRequestWithContext(ctx, method, "http://"+n.Addr()+path, body)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer "+tenantA)
				wg.Go(func() {
					if res, err := n.hc.Do(req); err == nil {
						_ = res.Body.Close()
						t.Errorf("an answer came: %d", res.StatusCode)
					}
				})
			}
			for range dead {
				<-waiting
			}
			cancel()
			wg.Wait()
			n.inFlight.wait()
			n.q.offer("orders", "work", text(0, "a"))
			if n.q.held() != 0 {
				t.Errorf("%d leases of clients that are gone", n.q.held())
			}
			var got leaseJSON
			n.call("POST", work+"/lease", "").ok(200, &got)
			if len(got.Messages) != 1 || got.Messages[0].Attempt != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestLeasesThatWereReadAreKept: an HTTP/2 client that has read all of the answer may reset the stream before the node knows that it is done.
// Its leases are not given back.
func TestLeasesThatWereReadAreKept(t *testing.T) {
	n := worker(t, nil)
	n.useH2()
	const rounds = 3000
	var records []segment.Record
	for i := range rounds {
		records = append(records, text(int64(i), strings.Repeat("x", 6000))) // not held back in a buffer
	}
	n.q.offer("orders", "work", records...)
	var wg sync.WaitGroup
	for range 30 { // at a time, so that a reset may overtake the handler
		wg.Go(func() {
			for range rounds / 30 {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, "POST", "http://"+n.Addr()+work+"/lease", strings.NewReader(`{"max":1}`))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+tenantA)
				req.Header.Set("Content-Type", "application/json")
				res, err := n.hc.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := io.ReadFull(res.Body, make([]byte, res.ContentLength)); err != nil {
					t.Error(err)
				}
				cancel() // not read to its end: the stream is reset
				_ = res.Body.Close()
			}
		})
	}
	wg.Wait()
	n.inFlight.wait()
	if n.q.held() != rounds {
		t.Errorf("%d of %d leases are held, %d were given back", n.q.held(), rounds, len(n.q.undone))
	}
}

// TestLeasesOfLostAnswersAreGivenBack: the client goes away between the grant and the answer.
func TestLeasesOfLostAnswersAreGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		back bool
	}{
		"plain": {`{"wait":"30s","max":5}`, true},
		// A repeat with the same ID gets the same leases; giving them back would take them from it.
		"with an ID": {`{"wait":"30s","max":5,"requestId":"r"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := worker(t, nil)
			granted := make(chan struct{})
			n.q.granted = func(ctx context.Context) { close(granted); <-ctx.Done() }
			n.q.offer("orders", "work", text(0, "a"), text(1, "b"))
			conn := n.dial()
			fmt.Fprintf(conn, "POST %s/lease HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", work, tenantA, len(c.body), c.body)
			<-granted
			_ = conn.Close()
			n.inFlight.wait()
			if c.back {
				if n.q.held() != 0 || len(n.q.undone) != 2 {
					t.Errorf("%d are held, %v given back", n.q.held(), n.q.undone)
				}
			} else if n.q.held() != 2 {
				t.Errorf("%d are held", n.q.held())
			}
		})
	}
}

// failingWriter is a ResponseWriter whose client has closed: small writes go to a buffer, and the flush fails.
type failingWriter struct {
	*recorder
	flushed bool
}

func (w *failingWriter) FlushError() error {
	w.flushed = true
	return errors.New("connection reset")
}

func TestLeaseWhoseWriteFailsIsGivenBack(t *testing.T) {
	n := worker(t, nil)
	n.q.offer("orders", "work", text(0, "a"))
	req, err := http.NewRequestWithContext(t.Context(), "POST", work+"/lease", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+tenantA)
	w := &failingWriter{recorder: newRecorder()}
	n.echo.ServeHTTP(w, req)
	if !w.flushed || n.q.held() != 0 || len(n.q.undone) != 1 {
		t.Errorf("flushed %v, %d held, %v given back", w.flushed, n.q.held(), n.q.undone)
	}
}

func TestLeaseThatFindsNoRoomForItsAnswerIsGivenBack(t *testing.T) {
	n := worker(t, func(o *Options) { o.Limits.MaxAnswerBytes = 100 })
	n.q.offer("orders", "work", text(0, strings.Repeat("x", smallAnswer)))
	n.call("POST", work+"/lease", `{"requestId":"r"}`).problem(503, "OVERLOADED")
	if n.q.held() != 0 {
		t.Errorf("%d held", n.q.held())
	}
}

func TestDrainEndsWaitingLeases(t *testing.T) {
	n := worker(t, nil)
	waiting := make(chan struct{}, 2)
	n.f.onCall("Lease", func() { waiting <- struct{}{} })
	type result struct {
		status int
		err    error
	}
	results := make(chan result, 2)
	for _, path := range []string{"/lease", "/consume?wait=30s"} {
		method, body := "GET", ""
		if path == "/lease" {
			method, body = "POST", `{"wait":"30s"}`
		}
		req, _ := http.NewRequestWithContext(t.Context(), method, "http://"+n.Addr()+work+path, strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+tenantA)
		go func() {
			res, err := n.hc.Do(req)
			if err != nil {
				results <- result{0, err}
				return
			}
			_ = res.Body.Close()
			results <- result{res.StatusCode, nil}
		}()
	}
	<-waiting
	<-waiting
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		t.Error(err)
	}
	for range 2 {
		if r := <-results; r.status != 204 || r.err != nil {
			t.Errorf("%+v", r)
		}
	}
}

func TestLeaseIsOneWrite(t *testing.T) {
	// The explicit flush must not make chunks of a small answer, nor lose the connection for the next request.
	n := worker(t, nil)
	n.q.offer("orders", "work", text(0, "a"), text(1, "b"))
	conn := n.dial()
	r := bufio.NewReader(conn)
	for range 2 {
		fmt.Fprintf(conn, "GET %s/consume HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", work, tenantA)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 200 || res.ContentLength != int64(len(body)) || len(res.TransferEncoding) > 0 {
			t.Errorf("%d, length %d of %d, %v, %v", res.StatusCode, res.ContentLength, len(body), res.TransferEncoding, err)
		}
	}
}

func TestPeek(t *testing.T) {
	n := worker(t, nil)
	n.q.offer("orders", "work", text(0, "a"), text(1, "b"), text(2, "c"))
	var got leaseJSON
	n.call("GET", work+"/peek?max=2", "").ok(200, &got)
	if len(got.Messages) != 2 || got.Messages[0].DueAt != nil || got.Messages[1].DueAt == nil || got.Messages[0].Text != "a" || got.Messages[0].Receipt != "" || n.q.held() != 0 {
		t.Errorf("%+v", got)
	}
	for _, q := range []string{"max=0", "max=101", "limit=1"} {
		n.call("GET", work+"/peek?"+q, "").problem(400, "INVALID_REQUEST")
	}
}

func TestSeek(t *testing.T) {
	n := worker(t, nil)
	for _, body := range []string{`{"to":"earliest"}`, `{"to":"latest"}`, `{"timestamp":"2026-01-02T03:04:05Z"}`, `{"offsets":{"0":42,"7":9223372036854775807}}`} {
		var s subscriptionJSON
		n.call("POST", work+"/seek", body).ok(200, &s)
		if s.Name != "work" || len(s.Partitions) != 2 {
			t.Errorf("%+v", s)
		}
	}
	s := n.q.seeks
	if !s[0].Earliest || !s[1].Latest || s[2].Time == nil || len(s[3].Offsets) != 2 || s[3].Offsets[0] != 42 || s[3].Offsets[7] != 9223372036854775807 {
		t.Errorf("%+v", s)
	}
	for body, pointer := range map[string]string{
		``:                                      "",
		`{}`:                                    "",
		`{"to":"latest","offsets":{"0":1}}`:     "",
		`{"to":"now"}`:                          "/to",
		`{"to":null}`:                           "/to",
		`{"timestamp":5}`:                       "/timestamp",
		`{"offsets":{}}`:                        "/offsets",
		`{"offsets":[1]}`:                       "/offsets",
		`{"offsets":{"0":1e3}}`:                 "/offsets/0", // H4
		`{"offsets":{"0":1.5}}`:                 "/offsets/0",
		`{"offsets":{"0":-0}}`:                  "/offsets/0",
		`{"offsets":{"0":-1}}`:                  "/offsets/0",
		`{"offsets":{"0":"5"}}`:                 "/offsets/0",
		`{"offsets":{"0":9223372036854775808}}`: "/offsets/0",
		`{"offsets":{"00":1}}`:                  "/offsets/00",
		`{"offsets":{"-1":1}}`:                  "/offsets/-1",
		`{"offsets":{"10000":1}}`:               "/offsets/10000",
		`{"offsets":{"0":1,"0":2}}`:             "/offsets/0",
		`{"offset":1}`:                          "/offset",
	} {
		p := n.call("POST", work+"/seek", body).problem(400, "INVALID_REQUEST")
		if len(p.Errors) != 1 || p.Errors[0].Pointer != pointer {
			t.Errorf("%s: %+v, want the pointer %q", body, p.Errors, pointer)
		}
	}
	n.call("POST", work+"/seek", `{"offsets":{"0":1,"8":1}}`).problem(404, "UNKNOWN_PARTITION")
	n.f.elsewhere(tenantA, "orders", func(c *api.TopicConfig) { c.Partitions = 9 }) // another node raised the number
	n.call("POST", work+"/seek", `{"offsets":{"0":1,"8":1}}`).ok(200, nil)
}
