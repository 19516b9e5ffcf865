package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
	"github.com/forebaymq/forebay/leases"
)

// instant answers every lease with the same messages and every settle with success, so that what is measured is the gateway.
type instant struct {
	Queues
	messages []leases.Message
	results  []leases.SettleResult
}

func newInstant(count int) *instant {
	q := &instant{}
	for i := range count {
		receipt := fmt.Sprintf("3:%d:01K8Z6B8M3W3H0F7V6S1Q2R4T5", i+1000)
		q.messages = append(q.messages, leases.Message{Receipt: receipt, Partition: 3, Attempt: 1, ExpiresAt: 1_700_000_030_000, Record: text(int64(i+1000), strings.Repeat("x", 1024))})
		q.results = append(q.results, leases.SettleResult{Receipt: receipt})
	}
	return q
}

func (q *instant) Lease(context.Context, leases.LeaseRequest) ([]leases.Message, error) {
	return q.messages, nil
}

func (q *instant) Settle(_ context.Context, r leases.SettleRequest) ([]leases.SettleResult, error) {
	return q.results[:len(r.Receipts)], nil
}

// BenchmarkQueueHandlers measures the handlers alone, from the parsed request head to the written answer.
func BenchmarkQueueHandlers(b *testing.B) {
	for _, count := range []int{1, 100} {
		q := newInstant(count)
		f := newFabric()
		o := testOptions(f, io.Discard)
		o.Logger, o.Queues = nil, q
		s, err := New(o)
		if err != nil {
			b.Fatal(err)
		}
		f.topic("orders", nil)
		s.drain = b.Context()
		receipts := make([]string, count)
		for i := range q.messages {
			receipts[i] = q.messages[i].Receipt
		}
		ackProto, err := proto.Marshal(&forebayv1.AckRequest{Receipts: receipts})
		if err != nil {
			b.Fatal(err)
		}
		leaseProto, err := proto.Marshal(&forebayv1.LeaseRequest{Max: proto.Int32(int32(count)), WaitMs: proto.Int64(1000)})
		if err != nil {
			b.Fatal(err)
		}
		const json, protobuf = "application/json", "application/x-protobuf"
		for _, c := range []struct{ name, method, path, ct, body string }{
			{"lease/json", "POST", work + "/lease", json, fmt.Sprintf(`{"max":%d,"wait":"1s"}`, count)},
			{"lease/proto", "POST", work + "/lease", protobuf, string(leaseProto)},
			{"ack/json", "POST", work + "/ack", json, `{"receipts":["` + strings.Join(receipts, `","`) + `"]}`},
			{"ack/proto", "POST", work + "/ack", protobuf, string(ackProto)},
			{"ack/one", "POST", work + "/ack?receipt=" + receipts[0], json, ""},
		} {
			if c.name == "ack/one" && count > 1 {
				continue
			}
			b.Run(fmt.Sprintf("%s/%d", c.name, count), func(b *testing.B) {
				b.ReportAllocs()
				req, err := http.NewRequestWithContext(b.Context(), c.method, c.path, nil)
				if err != nil {
					b.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer "+tenantA)
				req.Header.Set("Content-Type", c.ct)
				body := bytes.NewReader([]byte(c.body))
				w := newRecorder()
				for b.Loop() {
					if c.body != "" {
						body.Reset([]byte(c.body))
						req.Body, req.ContentLength = io.NopCloser(body), int64(len(c.body))
					}
					w.body.Reset()
					s.echo.ServeHTTP(w, req)
				}
				if w.status >= 300 {
					b.Fatalf("%d: %s", w.status, w.body.String())
				}
			})
		}
	}
}

// BenchmarkQueueOverHTTP measures one lease and one ack of a message a round, over keep-alive connections of loopback, client included.
func BenchmarkQueueOverHTTP(b *testing.B) {
	q := newInstant(1)
	f := newFabric()
	o := testOptions(f, io.Discard)
	o.Logger, o.Queues = nil, q
	s, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	f.topic("orders", nil)
	if err := s.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	b.Cleanup(func() {
		hc.CloseIdleConnections()
		if err := s.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	})
	call := func(method, path string) error {
		req, err := http.NewRequestWithContext(b.Context(), method, "http://"+s.Addr()+path, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+tenantA)
		res, err := hc.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode >= 300 {
			return fmt.Errorf("%s: %d", path, res.StatusCode)
		}
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			for _, c := range [...][2]string{{"GET", work + "/consume?wait=1s"}, {"POST", work + "/ack?receipt=" + q.messages[0].Receipt}} {
				if err := call(c[0], c[1]); err != nil {
					b.Error(err)
					return
				}
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
