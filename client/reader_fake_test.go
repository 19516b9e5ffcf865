package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
)

// fakeLog serves one topic, t, for reading.
type fakeLog struct {
	t  *testing.T
	mu struct {
		sync.Mutex
		id      string
		parts   []*fakeLogPart
		topics  int // how often the topic was asked for
		reads   int
		now     int // reads that are being answered
		most    int
		changed chan struct{}
		// spoil answers a request in its place (true), before anything else; nil = nothing.
		spoil func(w http.ResponseWriter, r *http.Request) bool
	}
}

// fakeLogPart has the records logStart to head; those at an offset of holes are compacted away. Record n is appended at second n.
type fakeLogPart struct {
	logStart, head int64
	holes          func(offset int64) bool
}

func newFakeLog(t *testing.T, parts ...*fakeLogPart) *fakeLog {
	f := &fakeLog{t: t}
	f.mu.id, f.mu.parts, f.mu.changed = "id-1", parts, make(chan struct{})
	return f
}

// set changes the log, and wakes those who wait at a head.
func (f *fakeLog) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.mu.changed)
	f.mu.changed = make(chan struct{})
}

func (f *fakeLog) reads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.reads
}

func (f *fakeLog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	spoil := f.mu.spoil
	f.mu.Unlock()
	if spoil != nil && spoil(w, r) {
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/v1/topics/t")
	if !ok {
		f.problem(w, 404, `{"code":"UNKNOWN_TOPIC"}`)
		return
	}
	if rest == "" {
		f.topic(w)
		return
	}
	id, ok := strings.CutPrefix(strings.TrimSuffix(rest, "/records"), "/partitions/")
	n, err := strconv.Atoi(id)
	if !ok || err != nil {
		f.problem(w, 404, `{"code":"NOT_FOUND"}`)
		return
	}
	f.records(w, r, n)
}

func (f *fakeLog) problem(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

func (f *fakeLog) topic(w http.ResponseWriter) {
	f.mu.Lock()
	f.mu.topics++
	close(f.mu.changed)
	f.mu.changed = make(chan struct{})
	t := Topic{Name: "t", TopicID: f.mu.id, Partitions: len(f.mu.parts)}
	for i, p := range f.mu.parts {
		t.PartitionInfo = append(t.PartitionInfo, PartitionInfo{Partition: i, LogStart: p.logStart, Head: p.head})
	}
	f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(t); err != nil {
		f.t.Error(err)
	}
}

// waitFor waits until ready, which is called under the lock.
func (f *fakeLog) waitFor(ready func() bool) {
	for {
		f.mu.Lock()
		changed, ok := f.mu.changed, ready()
		f.mu.Unlock()
		if ok {
			return
		}
		<-changed
	}
}

// await waits for a record at from.
func (f *fakeLog) await(ctx context.Context, n int, from int64, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		f.mu.Lock()
		changed, ready := f.mu.changed, n >= len(f.mu.parts) || f.mu.parts[n].head > from
		f.mu.Unlock()
		if ready {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (f *fakeLog) records(w http.ResponseWriter, r *http.Request, n int) {
	q := r.URL.Query()
	f.mu.Lock()
	f.mu.reads++
	f.mu.now++
	f.mu.most = max(f.mu.most, f.mu.now)
	if n >= len(f.mu.parts) {
		f.mu.now--
		f.mu.Unlock()
		f.problem(w, 404, `{"code":"UNKNOWN_PARTITION"}`)
		return
	}
	p := f.mu.parts[n]
	from := p.logStart
	switch at := q.Get("offset"); at {
	case "earliest":
	case "latest":
		from = p.head
	case "":
		t, err := time.Parse(time.RFC3339Nano, q.Get("timestamp"))
		if err != nil {
			f.t.Error(err)
		}
		for from < p.head && (time.Unix(from, 0).Before(t) || p.holes != nil && p.holes(from)) {
			from++
		}
	default:
		from, _ = strconv.ParseInt(at, 10, 64)
	}
	f.mu.Unlock()
	if wait, err := time.ParseDuration(q.Get("wait")); err == nil {
		f.await(r.Context(), n, from, wait)
	}
	limit, _ := strconv.Atoi(q.Get("limit"))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.now--
	if from < p.logStart || from > p.head {
		f.problem(w, 416, fmt.Sprintf(`{"code":"OFFSET_OUT_OF_RANGE","logStart":%d,"head":%d}`, p.logStart, p.head))
		return
	}
	out := &forebayv1.ReadResponse{Head: p.head, LogStart: p.logStart}
	next := from
	for ; next < p.head && len(out.Records) < limit; next++ {
		if p.holes == nil || !p.holes(next) {
			out.Records = append(out.Records, &forebayv1.Record{
				Offset: next, Partition: proto.Int32(int32(n)), Value: fmt.Appendf(nil, "%d:%d", n, next), TimeMs: next * 1000,
			})
		}
	}
	out.NextOffset = next
	raw, err := proto.Marshal(out)
	if err != nil {
		f.t.Error(err)
	}
	w.Header().Set("Content-Type", contentProtobuf)
	_, _ = w.Write(raw)
}
