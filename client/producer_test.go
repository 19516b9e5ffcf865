package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/api"
	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
)

// producerTest is a Producer and its fake server in a bubble of synctest.
type producerTest struct {
	*testing.T
	s *producerServer
	p *Producer
}

func inBubble(t *testing.T, partitions int, faults producerFaults, opts []ProducerOption, f func(t *producerTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newProducerServer(1, partitions, faults)
		p, err := NewProducer(s.client(), "t", opts...)
		if err != nil {
			t.Fatal(err)
		}
		defer s.ghosts.Wait()
		defer func() { _ = p.Close(context.Background()) }()
		f(&producerTest{t, s, p})
	})
}

func textRecord(key, value string) Record {
	r := Record{Value: []byte(value), Kind: KindText}
	if key != "" {
		r.Key = []byte(key)
	}
	return r
}

// send sends values under one key.
func (t *producerTest) send(values ...string) []*Delivery {
	t.Helper()
	var ds []*Delivery
	for _, v := range values {
		d, err := t.p.Send(t.Context(), textRecord("k", v))
		if err != nil {
			t.Fatalf("send %s: %v", v, err)
		}
		ds = append(ds, d)
	}
	return ds
}

// want holds the log of partition 0 against values.
func (t *producerTest) want(values ...string) {
	t.Helper()
	if diff := cmp.Diff(values, t.s.values(0)); diff != "" {
		t.Errorf("the log: %s", diff)
	}
}

// intercept answers publishes in place of the server: fn is called with the number of the publish, from 1, and gives nil to let it pass.
func (t *producerTest) intercept(fn func(n int, ctx context.Context, apply func() *http.Response) (*http.Response, error)) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	var n atomic.Int32
	t.s.mu.intercept = func(r *http.Request, apply func() *http.Response) (*http.Response, error) {
		if !strings.HasSuffix(r.URL.Path, "/records") {
			return nil, nil
		}
		return fn(int(n.Add(1)), r.Context(), apply)
	}
}

func refusal(code api.Code) *http.Response { return problemResponse(&api.Error{Code: code}) }

func TestProducerBatches(t *testing.T) {
	inBubble(t, 1, producerFaults{}, nil, func(t *producerTest) {
		var values []string
		for i := range 100 {
			values = append(values, fmt.Sprint(i))
		}
		ds := t.send(values...)
		for i, d := range ds {
			at, err := d.Wait(t.Context())
			if err != nil || at != (Position{0, int64(i)}) || d.Duplicate() {
				t.Fatalf("record %d is at %v: %v", i, at, err)
			}
		}
		t.want(values...)
		if len(t.s.mu.sizes) != 1 {
			t.Errorf("requests of %v records", t.s.mu.sizes)
		}
	})
}

// TestProducerGathers: what arrives while a request is under way becomes one request, however large the load.
func TestProducerGathers(t *testing.T) {
	inBubble(t, 1, producerFaults{}, []ProducerOption{WithProducerLinger(0)}, func(t *producerTest) {
		t.intercept(func(_ int, ctx context.Context, _ func() *http.Response) (*http.Response, error) {
			return nil, nap(ctx, 100*time.Millisecond)
		})
		for i := range 100 {
			t.send(fmt.Sprint(i))
			_ = nap(t.Context(), 10*time.Millisecond)
		}
		if err := t.p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(t.s.mu.sizes); n > 15 || t.s.mu.sizes[0] != 1 {
			t.Errorf("%d requests of %v records", n, t.s.mu.sizes)
		}
	})
}

func TestProducerLingers(t *testing.T) {
	inBubble(t, 1, producerFaults{}, []ProducerOption{WithProducerLinger(50 * time.Millisecond)}, func(t *producerTest) {
		t.send("open") // the first has to learn the topic
		_ = t.p.Flush(t.Context())
		began := time.Now()
		first := t.send("a")[0]
		_ = nap(t.Context(), 40*time.Millisecond)
		t.send("b")
		if _, err := first.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 50*time.Millisecond || took > 100*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		if diff := cmp.Diff([]int{1, 2}, t.s.mu.sizes); diff != "" {
			t.Error(diff)
		}
		began = time.Now()
		t.send("c")
		if err := t.p.Flush(t.Context()); err != nil || time.Since(began) > 45*time.Millisecond {
			t.Errorf("a flush took %s: %v", time.Since(began), err)
		}
	})
}

// TestProducerRefusesAtOnce: what no server takes never gets into a request, and the error names the limit.
func TestProducerRefusesAtOnce(t *testing.T) {
	inBubble(t, 4, producerFaults{}, nil, func(t *producerTest) {
		for name, c := range map[string]struct {
			r    Record
			want string
		}{
			"value":     {Record{Value: make([]byte, api.MaxRecordBytes+1)}, "1048577 bytes, the limit is 1048576 (api.MaxRecordBytes)"},
			"together":  {Record{Key: make([]byte, 10), Value: make([]byte, api.MaxRecordBytes-5)}, "api.MaxRecordBytes"},
			"key":       {Record{Key: make([]byte, api.MaxKeyBytes+1)}, "api.MaxKeyBytes"},
			"headers":   {Record{Headers: []Header{{"a", strings.Repeat("x", api.MaxHeaderBytes)}}}, "api.MaxHeaderBytes"},
			"many":      {Record{Headers: make([]Header, api.MaxHeaders+1)}, "api.MaxHeaders"},
			"id":        {Record{ID: strings.Repeat("x", api.MaxIDBytes+1)}, "api.MaxIDBytes"},
			"both":      {Record{Key: []byte("k"), Pinned: true}, "leave out one"},
			"partition": {Record{Pinned: true, Partition: -1}, "there is no partition -1"},
		} {
			d, err := t.p.Send(t.Context(), c.r)
			outcome, _ := Classify(err)
			if d != nil || outcome != Definite || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %s %v", name, outcome, err)
			}
		}
		if _, err := t.p.Send(t.Context(), Record{Value: make([]byte, api.MaxRecordBytes)}); err != nil {
			t.Errorf("the largest record: %v", err)
		}
		if err := t.p.Flush(t.Context()); err != nil || t.p.budget.inUse() != 0 {
			t.Errorf("%d bytes in use: %v", t.p.budget.inUse(), err)
		}
	})
}

// TestProducerBackPressure: a full buffer holds Send until there is room, or its context ends; and nothing is dropped.
func TestProducerBackPressure(t *testing.T) {
	inBubble(t, 1, producerFaults{}, []ProducerOption{WithProducerBuffer(1000)}, func(t *producerTest) {
		t.intercept(func(_ int, ctx context.Context, _ func() *http.Response) (*http.Response, error) {
			return nil, nap(ctx, time.Second)
		})
		began := time.Now()
		for i := range 20 {
			t.send(fmt.Sprintf("%d-%s", i, strings.Repeat("x", 300)))
		}
		if took := time.Since(began); took < 5*time.Second {
			t.Errorf("20 records of 300 bytes went through a buffer of 1,000 in %s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := t.p.Send(ctx, textRecord("k", strings.Repeat("x", 300)))
		if outcome, _ := Classify(err); !errors.Is(err, context.DeadlineExceeded) || outcome != Retriable {
			t.Errorf("%s: %v", outcome, err)
		}
		if _, err := t.p.Send(t.Context(), textRecord("k", strings.Repeat("x", 5000))); err != nil { // larger than the buffer, alone
			t.Error(err)
		}
		if err := t.p.Flush(t.Context()); err != nil || len(t.s.values(0)) != 21 {
			t.Errorf("%d records: %v", len(t.s.values(0)), err)
		}
	})
}

// TestProducerRetryAfter: all lanes leave the server alone as long as it asked for, cut to the policy's bound, and go on.
func TestProducerRetryAfter(t *testing.T) {
	inBubble(t, 8, producerFaults{}, nil, func(t *producerTest) {
		t.send("open")
		_ = t.p.Flush(t.Context())
		var mu sync.Mutex
		var times []time.Time
		t.intercept(func(n int, _ context.Context, _ func() *http.Response) (*http.Response, error) {
			mu.Lock()
			times = append(times, time.Now())
			mu.Unlock()
			if n > 1 {
				return nil, nil
			}
			resp := refusal(api.CodeQuotaExceeded)
			resp.Header.Set("Retry-After", "99999999999999999999")
			return resp, nil
		})
		began := time.Now()
		t.send("first")
		_ = nap(t.Context(), 100*time.Millisecond)
		for i := range 30 {
			if _, err := t.p.Send(t.Context(), textRecord(fmt.Sprint(i), "x")); err != nil {
				t.Fatal(err)
			}
		}
		if err := t.p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, at := range times[1:] {
			if after := at.Sub(began); after < 2*time.Second || after > 3*time.Second { // the bound of the client is 2 s
				t.Errorf("a request %s after the refusal", after)
			}
		}
	})
}

// TestProducerWithoutIdempotence (case K1): what may have arrived is not sent again by itself, what was refused is.
func TestProducerWithoutIdempotence(t *testing.T) {
	for name, c := range map[string]struct {
		first    *http.Response
		err      error
		requests int
		want     Outcome
	}{
		"lost answer":   {nil, errReset, 1, Indefinite},
		"a proxy's 502": {response(502, "text/html", nil), nil, 1, Indefinite},
		"unknown":       {refusal(api.CodeOutcomeUnknown), nil, 1, Indefinite},
		"overloaded":    {refusal(api.CodeOverloaded), nil, 2, Succeeded},
		"forbidden":     {refusal(api.CodeForbidden), nil, 1, Definite},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, producerFaults{}, []ProducerOption{WithoutProducerIdempotence()}, func(t *producerTest) {
				requests := 0
				t.intercept(func(n int, _ context.Context, apply func() *http.Response) (*http.Response, error) {
					if requests = n; n > 1 {
						return nil, nil
					}
					return c.first, c.err
				})
				_, err := t.p.Publish(t.Context(), textRecord("k", "v"))
				if outcome, _ := Classify(err); outcome != c.want || requests != c.requests {
					t.Errorf("%d requests, %s: %v", requests, outcome, err)
				}
				if err := t.p.Flush(t.Context()); (err == nil) != (c.want == Succeeded) {
					t.Errorf("flush: %v", err)
				}
				if _, err := t.p.Publish(t.Context(), textRecord("k", "next")); err != nil {
					t.Errorf("the next record: %v", err)
				}
			})
		})
	}
}

// TestProducerDeadline: at the deadline of a request of unknown outcome the server is asked, and what follows goes on in order.
func TestProducerDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		first  func(apply func() *http.Response) (*http.Response, error)
		want   Outcome
		values []string
	}{
		"it has landed": {func(apply func() *http.Response) (*http.Response, error) { apply(); return nil, errReset }, Succeeded, []string{"a", "b"}},
		"it has not":    {func(func() *http.Response) (*http.Response, error) { return nil, errReset }, Indefinite, []string{"b"}},
		"refused":       {func(func() *http.Response) (*http.Response, error) { return refusal(api.CodeOverloaded), nil }, Retriable, []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, producerFaults{}, []ProducerOption{WithProducerDeadline(3 * time.Second), WithProducerBatchRecords(1)}, func(t *producerTest) {
				began := time.Now()
				t.intercept(func(n int, _ context.Context, apply func() *http.Response) (*http.Response, error) {
					switch {
					case n == 1:
						return c.first(apply)
					case time.Since(began) < 3*time.Second:
						return refusal(api.CodeStorageUnavailable), nil
					}
					return nil, nil
				})
				a := t.send("a")[0]
				_ = nap(t.Context(), time.Second)
				b := t.send("b")[0]
				at, err := a.Wait(t.Context())
				outcome, _ := Classify(err)
				if outcome != c.want || outcome == Succeeded && (at != Position{0, -1} || !a.Duplicate()) || outcome != Succeeded && !errors.Is(err, ErrDeliveryDeadline) {
					t.Errorf("%s at %v: %v", outcome, at, err)
				}
				if took := time.Since(began); took < 2*time.Second || took > 4*time.Second {
					t.Errorf("it took %s", took)
				}
				if _, err := b.Wait(t.Context()); err != nil {
					t.Errorf("the record behind it: %v", err)
				}
				t.want(c.values...)
			})
		})
	}
}

// TestProducerDeadlineOfEach: records that gather behind a request that hangs do not share the deadline of the first of them.
func TestProducerDeadlineOfEach(t *testing.T) {
	inBubble(t, 1, producerFaults{}, []ProducerOption{WithProducerDeadline(10 * time.Second)}, func(t *producerTest) {
		t.intercept(func(int, context.Context, func() *http.Response) (*http.Response, error) {
			return refusal(api.CodeStorageUnavailable), nil
		})
		var sent []time.Time
		var ds []*Delivery
		for range 30 {
			sent = append(sent, time.Now())
			ds = append(ds, t.send("x")...)
			_ = nap(t.Context(), 400*time.Millisecond)
		}
		var last time.Time
		for i, d := range ds {
			_, err := d.Wait(t.Context())
			if last = time.Now(); !errors.Is(err, ErrDeliveryDeadline) || last.Sub(sent[i]) < 8*time.Second {
				t.Errorf("record %d failed after %s: %v", i, last.Sub(sent[i]), err)
			}
		}
	})
}

// TestProducerDefiniteAfterUnknown: a refusal speaks for its own attempt. The one before may have landed.
func TestProducerDefiniteAfterUnknown(t *testing.T) {
	inBubble(t, 1, producerFaults{}, nil, func(t *producerTest) {
		t.intercept(func(n int, _ context.Context, apply func() *http.Response) (*http.Response, error) {
			switch n {
			case 1:
				apply()
				return nil, errReset
			case 2, 4:
				return refusal(api.CodeForbidden), nil
			case 3:
				return nil, errReset
			}
			return nil, nil
		})
		if at, err := t.p.Publish(t.Context(), textRecord("k", "a")); err != nil || at.Offset != -1 {
			t.Errorf("it is stored, but %v %v", at, err)
		}
		_, err := t.p.Publish(t.Context(), textRecord("k", "b"))
		if outcome, _ := Classify(err); outcome != Indefinite || codeOf(err) != api.CodeForbidden {
			t.Errorf("%s: %v", outcome, err)
		}
		t.want("a")
	})
}

func bad(r *forebayv1.Record) *api.Error {
	if strings.HasPrefix(string(r.Value), "bad") {
		return api.Errorf(api.CodeSchemaViolation, "it says bad")
	}
	return nil
}

// TestProducerRefusedRecord: a record that the server refuses does not spoil those of others that share its request.
func TestProducerRefusedRecord(t *testing.T) {
	inBubble(t, 1, producerFaults{}, nil, func(t *producerTest) {
		t.s.mu.refuse = bad
		ds := t.send("bad0", "1", "2", "bad3", "4", "bad5")
		for i, d := range ds {
			at, err := d.Wait(t.Context())
			if i == 0 || i == 3 || i == 5 {
				if outcome, _ := Classify(err); outcome != Definite || codeOf(err) != api.CodeSchemaViolation {
					t.Errorf("record %d: %s %v", i, outcome, err)
				}
			} else if err != nil || at.Offset != map[int]int64{1: 0, 2: 1, 4: 2}[i] {
				t.Errorf("record %d is at %v: %v", i, at, err)
			}
		}
		t.want("1", "2", "4")
		if err := t.p.Flush(t.Context()); codeOf(err) != api.CodeSchemaViolation || !strings.Contains(err.Error(), "3 records") {
			t.Errorf("flush: %v", err)
		}
		if err := t.p.Flush(t.Context()); err != nil {
			t.Errorf("the second flush: %v", err)
		}
	})
}

// TestProducerStops: nothing behind a record that failed is stored, everything before it is.
func TestProducerStops(t *testing.T) {
	inBubble(t, 1, producerFaults{}, []ProducerOption{WithProducerStopOnFailure(), WithProducerBatchRecords(4)}, func(t *producerTest) {
		t.s.mu.refuse = bad
		ds := t.send("0", "1", "2", "3", "4", "bad5", "6", "7", "8", "9")
		for i, d := range ds {
			_, err := d.Wait(t.Context())
			outcome, _ := Classify(err)
			switch {
			case i < 5 && err != nil, i > 5 && (!errors.Is(err, ErrProducerStopped) || outcome != Definite), i == 5 && errors.Is(err, ErrProducerStopped):
				t.Errorf("record %d: %s %v", i, outcome, err)
			}
		}
		t.want("0", "1", "2", "3", "4")
		if _, err := t.p.Send(t.Context(), textRecord("k", "x")); !errors.Is(err, ErrProducerStopped) || codeOf(err) != api.CodeSchemaViolation {
			t.Errorf("send: %v", err)
		}
	})
}

// TestProducerWithoutTopic: an unknown topic is said at once, and used once it is there.
func TestProducerWithoutTopic(t *testing.T) {
	inBubble(t, 0, producerFaults{}, nil, func(t *producerTest) {
		_, err := t.p.Send(t.Context(), textRecord("k", "a"))
		if outcome, _ := Classify(err); outcome != Definite || codeOf(err) != api.CodeUnknownTopic {
			t.Errorf("%s: %v", outcome, err)
		}
		t.s.mu.Lock()
		t.s.mu.partitions = 1
		t.s.mu.Unlock()
		if _, err := t.p.Publish(t.Context(), textRecord("k", "b")); err != nil {
			t.Error(err)
		}
		t.want("b")
	})
}

// TestProducerFewerPartitions: the topic is deleted and created again with fewer; what was placed beyond them fails, and the next records
// fit.
func TestProducerFewerPartitions(t *testing.T) {
	inBubble(t, 9, producerFaults{}, nil, func(t *producerTest) {
		keyless := func() error {
			_, err := t.p.Publish(t.Context(), textRecord("", "x"))
			return err
		}
		for range 9 {
			if err := keyless(); err != nil {
				t.Fatal(err)
			}
		}
		t.s.mu.Lock()
		t.s.mu.partitions = 1
		t.s.mu.Unlock()
		failed := 0
		for range 9 {
			if err := keyless(); err != nil {
				failed++
				if codeOf(err) != api.CodeUnknownPartition {
					t.Error(err)
				}
			}
		}
		if failed > 1 {
			t.Errorf("%d records failed", failed)
		}
	})
}

// TestProducerSpreads: records without a key go to all partitions in turn, a batch at a time.
func TestProducerSpreads(t *testing.T) {
	inBubble(t, 4, producerFaults{}, []ProducerOption{WithProducerInFlight(2)}, func(t *producerTest) {
		for range 8 {
			for range 5 {
				if _, err := t.p.Send(t.Context(), textRecord("", "x")); err != nil {
					t.Fatal(err)
				}
			}
			if err := t.p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for q := range 4 {
			if n := len(t.s.values(q)); n != 10 {
				t.Errorf("partition %d has %d records", q, n)
			}
		}
	})
}

func TestProducerCallback(t *testing.T) {
	var mu sync.Mutex
	var got []string
	callback := func(r Record, at Position, err error) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, fmt.Sprintf("%s %d %v", r.Value, at.Offset, err != nil))
	}
	inBubble(t, 1, producerFaults{}, []ProducerOption{WithProducerCallback(callback), WithProducerBatchRecords(2)}, func(t *producerTest) {
		t.s.mu.refuse = bad
		for _, d := range t.send("a", "bad", "b", "c") {
			<-d.Done()
		}
		if diff := cmp.Diff([]string{"a 0 false", "bad 0 true", "b 1 false", "c 2 false"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestNewProducerRefuses(t *testing.T) {
	c := newProducerServer(1, 1, producerFaults{}).client()
	if _, err := NewProducer(c, "__journal"); err == nil {
		t.Error("a reserved name is accepted")
	}
	for name, opt := range map[string]ProducerOption{
		"empty ID": WithProducerID(""), "long ID": WithProducerID(strings.Repeat("x", 201)), "linger": WithProducerLinger(-1), "records": WithProducerBatchRecords(0),
		"many records": WithProducerBatchRecords(100_001), "bytes": WithProducerBatchBytes(16 << 20), "in flight": WithProducerInFlight(0),
		"buffer": WithProducerBuffer(0), "deadline": WithProducerDeadline(0),
	} {
		if _, err := NewProducer(c, "t", opt); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
