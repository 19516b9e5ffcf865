package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
	"github.com/forebaymq/forebay/client"
)

// queueServer serves one topic of two partitions and one subscription. Partition 0 begins at 10. A fault of each kind can be had.
type queueServer struct {
	t  *testing.T
	mu struct {
		sync.Mutex
		heads    [2]int64
		fresh    [2]int64
		frontier [2]int64
		owed     []string // to be delivered again
		serial   int
		leases   int
		deleted  bool
	}
	repeatDelivery, passAhead, miscount, lateAcks, busy bool
	parked                                              chan struct{} // signalled by publishes
}

func newQueueServer(t *testing.T) (*queueServer, *client.Client) {
	s := &queueServer{t: t, parked: make(chan struct{}, 100)}
	s.mu.heads = [2]int64{10, 0}
	s.mu.fresh = s.mu.heads
	s.mu.frontier = s.mu.heads
	return s, connect(t, s.ServeHTTP)
}

func (s *queueServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch rest := strings.TrimPrefix(r.URL.Path, "/v1/topics/t"); {
	case rest == "":
		fmt.Fprintf(w, `{"name":"t","partitions":2,"partitionInfo":[{"partition":0,"logStart":10,"head":%d},{"partition":1,"logStart":0,"head":%d}]}`, s.mu.heads[0], s.mu.heads[1])
	case rest == "/records":
		s.publish(w, body)
	case strings.HasSuffix(rest, "/lease"):
		s.lease(w, r, body)
	case strings.HasSuffix(rest, "/ack"):
		s.ack(w, r, body)
	case r.Method == http.MethodDelete:
		s.mu.deleted = true
		w.WriteHeader(204)
	default: // put and get
		if r.Method == http.MethodPut && strings.Contains(string(body), "latest") {
			s.mu.fresh, s.mu.frontier = s.mu.heads, s.mu.heads
		}
		var parts []string
		for p, frontier := range s.mu.frontier {
			if s.passAhead || s.miscount {
				frontier = min(frontier+1, s.mu.heads[p])
			}
			ahead := 0
			if s.passAhead && frontier > s.mu.frontier[p] {
				ahead = -1
			}
			parts = append(parts, fmt.Sprintf(`{"partition":%d,"frontier":%d,"head":%d,"ackedAhead":%d,"lag":%d}`, p, frontier, s.mu.heads[p], ahead, s.mu.heads[p]-frontier))
		}
		fmt.Fprintf(w, `{"name":"x","partitions":[%s]}`, strings.Join(parts, ","))
	}
}

func (s *queueServer) write(w http.ResponseWriter, m proto.Message) {
	raw, err := proto.Marshal(m)
	if err != nil {
		s.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(raw)
}

func (s *queueServer) publish(w http.ResponseWriter, body []byte) {
	var req forebayv1.PublishRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		s.t.Error(err)
	}
	out := &forebayv1.PublishResponse{}
	for range req.Records {
		p := 0
		if s.mu.heads[1] < s.mu.heads[0]-10 {
			p = 1
		}
		out.Records = append(out.Records, &forebayv1.Position{Partition: int32(p), Offset: s.mu.heads[p]})
		s.mu.heads[p]++
	}
	s.write(w, out)
	select {
	case s.parked <- struct{}{}:
	default:
	}
}

func (s *queueServer) lease(w http.ResponseWriter, r *http.Request, body []byte) {
	s.mu.leases++
	if s.busy && s.mu.leases%3 == 1 {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(503)
		_, _ = io.WriteString(w, `{"code":"LEASES_UNAVAILABLE"}`)
		return
	}
	most, wait := 0, int64(0)
	binary := r.Header.Get("Content-Type") == "application/x-protobuf"
	if binary {
		var req forebayv1.LeaseRequest
		if err := proto.Unmarshal(body, &req); err != nil {
			s.t.Error(err)
		}
		most, wait = int(req.GetMax()), req.GetWaitMs()
	} else {
		var req struct{ Max int }
		if err := json.Unmarshal(body, &req); err != nil {
			s.t.Error(err)
		}
		most = req.Max
	}
	for wait >= pollWait.Milliseconds() && s.mu.fresh == s.mu.heads {
		s.mu.Unlock()
		select {
		case <-s.parked:
		case <-r.Context().Done():
		}
		s.mu.Lock()
		if r.Context().Err() != nil {
			return
		}
	}
	var at []string
	at, s.mu.owed = s.mu.owed, nil
	for p := range s.mu.heads {
		for ; s.mu.fresh[p] < s.mu.heads[p] && len(at) < most; s.mu.fresh[p]++ {
			at = append(at, fmt.Sprintf("%d:%d", p, s.mu.fresh[p]))
		}
	}
	if len(at) == 0 {
		w.WriteHeader(204)
		return
	}
	out := &forebayv1.LeaseResponse{}
	var texts []string
	for i, place := range at {
		s.mu.serial++
		var p int32
		var o int64
		_, _ = fmt.Sscanf(place, "%d:%d", &p, &o)
		receipt := fmt.Sprintf("%s:n%d", place, s.mu.serial)
		out.Messages = append(out.Messages, &forebayv1.Lease{Receipt: receipt, Attempt: 1, Record: &forebayv1.Record{Partition: &p, Offset: o, Value: []byte("12345")}})
		texts = append(texts, fmt.Sprintf(`{"receipt":"%s","partition":%d,"offset":%d,"attempt":1,"text":"12345"}`, receipt, p, o))
		if s.repeatDelivery && i == 0 && s.mu.leases == 1 {
			s.mu.owed = append(s.mu.owed, place)
		}
	}
	if binary {
		s.write(w, out)
		return
	}
	_, _ = io.WriteString(w, `{"messages":[`+strings.Join(texts, ",")+`]}`)
}

func (s *queueServer) ack(w http.ResponseWriter, r *http.Request, body []byte) {
	var receipts []string
	binary := r.Header.Get("Content-Type") == "application/x-protobuf"
	switch one := r.URL.Query().Get("receipt"); {
	case one != "":
		receipts = []string{one}
	case binary:
		var req forebayv1.AckRequest
		if err := proto.Unmarshal(body, &req); err != nil {
			s.t.Error(err)
		}
		receipts = req.Receipts
	default:
		var req struct{ Receipts []string }
		if err := json.Unmarshal(body, &req); err != nil {
			s.t.Error(err)
		}
		receipts = req.Receipts
	}
	out := &forebayv1.SettleResponse{}
	var texts []string
	for i, receipt := range receipts {
		code := ""
		if s.lateAcks && i == 0 && s.mu.leases == 1 {
			code = "LEASE_LOST"
			s.mu.owed = append(s.mu.owed, receipt[:strings.LastIndexByte(receipt, ':')])
		} else {
			s.mu.frontier[int(receipt[0]-'0')]++ // one record more is settled; a counter will do
		}
		out.Results = append(out.Results, &forebayv1.SettleResult{Code: code})
		if code == "" {
			code = "OK"
		}
		texts = append(texts, fmt.Sprintf(`{"receipt":"%s","code":"%s"}`, receipt, code))
	}
	switch {
	case r.URL.RawQuery != "":
		w.WriteHeader(204)
	case binary:
		s.write(w, out)
	default:
		_, _ = io.WriteString(w, `{"results":[`+strings.Join(texts, ",")+`]}`)
	}
}

func (s *queueServer) options(c *client.Client) QueueOptions {
	return QueueOptions{Client: c, Topic: "t", Backlog: 1000, RecordSize: 20, Batch: 10, Clients: 3, Seed: 1}
}

func TestQueue(t *testing.T) {
	for _, c := range []struct {
		name  string
		batch int
		json  bool
	}{{"batches", 10, false}, {"one at a time", 1, false}, {"batches in JSON", 10, true}} {
		t.Run(c.name, func(t *testing.T) {
			s, cl := newQueueServer(t)
			o := s.options(cl)
			o.Batch, o.JSON = c.batch, c.json
			var last int64
			var mu sync.Mutex
			o.Progress = func(done, all int64) {
				mu.Lock()
				defer mu.Unlock()
				last = max(last, done)
				if all != 1000 {
					t.Errorf("%d of %d", done, all)
				}
			}
			report, err := Queue(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			v := report.Verified
			if report.Records != 1000 || report.Bytes != 5000 || v.Settled != 1000 || v.Delivered != 1000 || v.Duplicates != 0 || v.LostAcks != 0 || last != 1000 || !s.mu.deleted {
				t.Errorf("%+v, progress %d, deleted %v", report, last, s.mu.deleted)
			}
			if n := int64(1000 / c.batch); report.Ack.Count < n || report.Lease.Count < n || report.RecordsPerSec <= 0 {
				t.Errorf("%+v", report)
			}
			var text bytes.Buffer
			report.Print(&text)
			if !strings.Contains(text.String(), "each settled once") {
				t.Error(text.String())
			}
			// The backlog is there now: nothing is published.
			heads := s.mu.heads
			o.Keep, s.mu.deleted = true, false
			s.mu.fresh = [2]int64{10, 0}
			s.mu.frontier = s.mu.fresh
			if _, err := Queue(t.Context(), o); err != nil || s.mu.heads != heads || s.mu.deleted {
				t.Errorf("%v, heads %v, deleted %v", err, s.mu.heads, s.mu.deleted)
			}
		})
	}
}

// TestQueueCountsWhatIsAllowed: repeated deliveries and acks that came too late are told, and are no faults. A lease store that is away
// is counted, and waited for.
func TestQueueCountsWhatIsAllowed(t *testing.T) {
	s, cl := newQueueServer(t)
	s.lateAcks, s.busy = true, false
	o := s.options(cl)
	o.Clients = 1
	report, err := Queue(t.Context(), o)
	if err != nil || report.Verified.LostAcks != 1 || report.Verified.Duplicates != 1 || report.Verified.Settled != 1000 {
		t.Errorf("%+v, %v", report, err)
	}
	s, cl = newQueueServer(t)
	s.busy = true
	o = s.options(cl)
	o.Batch, o.Clients = 400, 1
	report, err = Queue(t.Context(), o)
	if err != nil || report.Errors["LEASES_UNAVAILABLE"] == 0 || report.Verified.Settled != 1000 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestQueueFindsFaults: the verification notices a server that is wrong.
func TestQueueFindsFaults(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*queueServer, *QueueOptions)
		want    string
	}{
		"a record is settled twice": {func(s *queueServer, o *QueueOptions) { s.repeatDelivery = true }, "settled twice"},
		"the frontier passes what nobody acked": {func(s *queueServer, o *QueueOptions) {
			s.passAhead, o.Duration, o.Backlog = true, time.Nanosecond, 1000
		}, "nobody acknowledged"},
		"the server counts more": {func(s *queueServer, o *QueueOptions) {
			s.miscount, o.Duration = true, time.Nanosecond
		}, "the server counts"},
	} {
		t.Run(name, func(t *testing.T) {
			s, cl := newQueueServer(t)
			o := s.options(cl)
			o.Clients = 1
			c.prepare(s, &o)
			report, err := Queue(t.Context(), o)
			if err == nil || report == nil || !strings.Contains(err.Error(), c.want) || len(report.Verified.Faults) == 0 {
				t.Errorf("%+v, %v", report, err)
			}
		})
	}
}

func TestQueueOptionsAreChecked(t *testing.T) {
	err := QueueOptions{Batch: 1001, Warmup: -1, Duration: -1}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{"backlog", "record-size", "batch", "clients", "warmup", "duration"} {
		if !strings.Contains(err.Error(), field+" must be") {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
}

func TestLedger(t *testing.T) {
	l := newLedger([]client.PartitionInfo{{Partition: 0, LogStart: 5, Head: 200}, {Partition: 1, LogStart: 3, Head: 3}})
	for o := int64(5); o < 200; o++ {
		l.deliver(0, o)
		l.settle(0, o)
	}
	l.deliver(0, 4)
	l.deliver(0, 200)
	l.deliver(2, 0)
	l.deliver(-1, 0)
	l.deliver(0, 199)
	whole := []client.SubscriptionPartition{{Partition: 0, Frontier: 200}}
	s := l.judge(whole, true)
	if s.Expected != 195 || s.Delivered != 195 || s.Settled != 195 || s.Duplicates != 1 || len(s.Faults) != 1 || !strings.Contains(s.Faults[0], "4 deliveries") {
		t.Errorf("%+v", s)
	}
	if s := l.judge(nil, true); len(s.Faults) != 2 || !strings.Contains(s.Faults[1], "missing") {
		t.Errorf("%+v", s)
	}
	if s := l.judge([]client.SubscriptionPartition{{Partition: 0, Frontier: 200, InFlight: 1}}, true); len(s.Faults) != 2 || !strings.Contains(s.Faults[1], "in flight") {
		t.Errorf("%+v", s)
	}
}

func TestPickup(t *testing.T) {
	s, cl := newQueueServer(t)
	o := PickupOptions{QueueOptions: s.options(cl), Count: 5, Interval: time.Millisecond}
	report, err := Pickup(t.Context(), o)
	if err != nil || report.Pickup.Count != 5 || report.Publish.Count != 5 || report.Ack.Count != 5 || report.Waiters != 3 || !s.mu.deleted {
		t.Errorf("%+v, %v", report, err)
	}
	o.Count = 0
	if _, err := Pickup(t.Context(), o); err == nil {
		t.Error("accepted")
	}
}
