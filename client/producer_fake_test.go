package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/forebaymq/forebay/api"
	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
)

// producerServer is a fake of what a producer sees of a fabric, with the rules of the metadata log: epochs, and per partition and producer
// the accepted sequences. It is an http.RoundTripper, so that it works in a bubble of synctest, with a network that loses, delays, repeats
// and reorders what it carries.
type producerServer struct {
	faults producerFaults
	ghosts sync.WaitGroup // requests that arrive after their senders gave up

	mu struct {
		sync.Mutex
		rng        *rand.Rand
		partitions int  // 0 = there is no topic
		hidden     bool // the token may not describe the topic
		logs       map[int][]string
		epochs     map[string]int64           // of the running sessions
		floor      int64                      // no session that is started has this epoch or a lower one
		windows    map[string]*producerWindow // by producer and partition
		requests   int
		flying     map[string]int // requests on the way, by partition
		overlaps   int            // requests that met another one of their partition
		sizes      []int          // records of each request that was applied
		refuse     func(r *forebayv1.Record) *api.Error
		intercept  func(r *http.Request, apply func() *http.Response) (*http.Response, error) // in place of the server, unless it gives nothing
	}
}

type producerWindow struct {
	highest int64
	answers map[int64]producerAnswer
}

type producerAnswer struct {
	base    int64
	records int
}

// producerFaults are probabilities, by request.
type producerFaults struct {
	loseRequest float64
	loseAnswer  float64
	ghost       float64 // of a lost request: it arrives after all, much later
	refuse      float64 // 503 or 429 with Retry-After
	unknown     float64 // 504 OUTCOME_UNKNOWN, applied or not
	proxy       float64 // 502 in a proxy's words, applied or not
	slow        float64 // takes up to a second instead of up to 20 ms
}

func newProducerServer(seed uint64, partitions int, faults producerFaults) *producerServer {
	s := &producerServer{faults: faults}
	s.mu.rng = rand.New(rand.NewPCG(seed, 77))
	s.mu.partitions = partitions
	s.mu.logs, s.mu.epochs, s.mu.windows = map[int][]string{}, map[string]int64{}, map[string]*producerWindow{}
	s.mu.flying = map[string]int{}
	return s
}

func (s *producerServer) client(opts ...Option) *Client {
	opts = append([]Option{
		WithHTTPClient(&http.Client{Transport: s, CheckRedirect: refuseRedirect}), WithTimeout(2 * time.Second),
		WithRetry(RetryPolicy{Attempts: 20, Initial: 10 * time.Millisecond, Max: 200 * time.Millisecond, MaxRetryAfter: 2 * time.Second}),
	}, opts...)
	c, err := New("http://fake", opts...)
	if err != nil {
		panic(err)
	}
	return c
}

// fate is what the network does to one request.
type fate struct {
	before, after                                          time.Duration
	loseRequest, loseAnswer, ghost, refuse, unknown, proxy bool
	applied                                                bool // of unknown and proxy
	retryAfter                                             int
	late                                                   time.Duration
}

func (s *producerServer) fate() fate {
	s.mu.Lock()
	defer s.mu.Unlock()
	hit := func(p float64) bool { return s.mu.rng.Float64() < p }
	span := 20 * time.Millisecond
	if hit(s.faults.slow) {
		span = time.Second
	}
	return fate{
		before: time.Duration(s.mu.rng.Int64N(int64(span))), after: time.Duration(s.mu.rng.Int64N(int64(span))),
		loseRequest: hit(s.faults.loseRequest), loseAnswer: hit(s.faults.loseAnswer), ghost: hit(s.faults.ghost), refuse: hit(s.faults.refuse),
		unknown: hit(s.faults.unknown), proxy: hit(s.faults.proxy), applied: hit(0.5), retryAfter: s.mu.rng.IntN(3),
		late: time.Duration(s.mu.rng.Int64N(int64(20 * time.Second))),
	}
}

func nap(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errReset = &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}

// RoundTrip carries a request to the server and its answer back.
func (s *producerServer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		_ = r.Body.Close()
	}
	f := s.fate()
	s.mu.Lock()
	s.mu.requests++
	intercept := s.mu.intercept
	s.mu.Unlock()
	if intercept != nil {
		resp, err := intercept(r, func() *http.Response { return s.apply(r, body) })
		if err == nil && r.Context().Err() != nil {
			err = r.Context().Err()
		}
		if resp != nil || err != nil {
			return resp, err
		}
	}
	keys := s.partitionsOf(r, body)
	s.take(keys, 1)
	defer s.take(keys, -1)
	arriveLater := func() {
		s.ghosts.Go(func() {
			_ = nap(context.Background(), f.late)
			s.apply(r, body)
		})
	}
	if err := nap(r.Context(), f.before); err != nil {
		if f.ghost {
			arriveLater()
		}
		return nil, err
	}
	switch {
	case f.loseRequest:
		if f.ghost {
			arriveLater()
		}
		if f.unknown { // nobody says that the connection is gone
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		return nil, errReset
	case f.refuse:
		code := api.CodeOverloaded
		if f.applied {
			code = api.CodeQuotaExceeded
		}
		return problemResponse(&api.Error{Code: code, RetryAfter: time.Duration(f.retryAfter) * time.Second}), nil
	case f.unknown, f.proxy:
		if f.applied {
			s.apply(r, body)
		} else if f.ghost {
			arriveLater()
		}
		if f.proxy {
			return response(http.StatusBadGateway, "text/html", []byte("<h1>Bad Gateway</h1>")), nil
		}
		return problemResponse(&api.Error{Code: api.CodeOutcomeUnknown}), nil
	}
	resp := s.apply(r, body)
	if err := nap(r.Context(), f.after); err != nil {
		return nil, err
	}
	if f.loseAnswer {
		return nil, errReset
	}
	return resp, nil
}

func response(status int, contentType string, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
	}
}

func problemResponse(e *api.Error) *http.Response {
	fields := ""
	for i, f := range e.Fields {
		if i > 0 {
			fields += ","
		}
		fields += fmt.Sprintf(`{"pointer":%q,"detail":%q}`, f.Pointer, f.Detail)
	}
	resp := response(api.Codes[e.Code].Status, "application/problem+json", fmt.Appendf(nil, `{"code":%q,"detail":%q,"errors":[%s]}`, e.Code, e.Detail, fields))
	if e.RetryAfter > 0 {
		resp.Header.Set("Retry-After", strconv.Itoa(int(e.RetryAfter/time.Second)))
	}
	return resp
}

// partitionsOf names the partitions of a publish.
func (s *producerServer) partitionsOf(r *http.Request, body []byte) []string {
	var req forebayv1.PublishRequest
	if !strings.HasSuffix(r.URL.Path, "/records") || proto.Unmarshal(body, &req) != nil || req.Producer == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[string]bool{}
	var keys []string
	for _, rec := range req.Records {
		key := fmt.Sprintf("%s/%d", req.Producer.Id, s.partitionLocked(&req, rec))
		if !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// take counts requests of one producer and partition that are under way at once.
func (s *producerServer) take(keys []string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		if s.mu.flying[k] += n; s.mu.flying[k] > 1 {
			s.mu.overlaps++
		}
	}
}

func (s *producerServer) partitionLocked(req *forebayv1.PublishRequest, r *forebayv1.Record) int {
	switch {
	case r.Partition != nil:
		return int(*r.Partition)
	case r.Key != nil:
		return api.PartitionForKey(r.Key, max(s.mu.partitions, 1))
	}
	seat := req.GetProducer().GetId() + strconv.FormatInt(req.GetProducer().GetSequence(), 10)
	return api.PartitionForKey([]byte(seat), max(s.mu.partitions, 1))
}

// apply is the server.
func (s *producerServer) apply(r *http.Request, body []byte) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, isProducer := strings.CutPrefix(r.URL.Path, "/v1/producers/")
	switch {
	case isProducer && r.Method == http.MethodPost:
		s.mu.epochs[id] = max(s.mu.epochs[id], s.mu.floor) + 1
		return response(200, "application/json", fmt.Appendf(nil, `{"epoch":%d}`, s.mu.epochs[id]))
	case isProducer:
		return response(200, "application/json", s.positionsLocked(id))
	case r.Method == http.MethodGet && s.mu.hidden:
		return problemResponse(&api.Error{Code: api.CodeForbidden})
	case s.mu.partitions == 0:
		return problemResponse(&api.Error{Code: api.CodeUnknownTopic})
	case r.Method == http.MethodGet:
		return response(200, "application/json", fmt.Appendf(nil, `{"name":"t","partitions":%d}`, s.mu.partitions))
	}
	var req forebayv1.PublishRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return problemResponse(&api.Error{Code: api.CodeInvalidRequest, Detail: err.Error()})
	}
	result, err := s.publishLocked(&req)
	if err != nil {
		return problemResponse(err)
	}
	raw, _ := proto.Marshal(result)
	return response(200, contentProtobuf, raw)
}

func (s *producerServer) positionsLocked(id string) []byte {
	var parts []string
	for q := range s.mu.partitions {
		if w := s.mu.windows[fmt.Sprintf("%s/%d", id, q)]; w != nil {
			parts = append(parts, fmt.Sprintf(`{"topic":"t","partition":%d,"sequence":%d}`, q, w.highest))
		}
	}
	return fmt.Appendf(nil, `{"id":%q,"partitions":[%s]}`, id, strings.Join(parts, ","))
}

func (s *producerServer) publishLocked(req *forebayv1.PublishRequest) (*forebayv1.PublishResponse, *api.Error) {
	if len(req.Records) == 0 {
		return nil, api.Errorf(api.CodeInvalidRequest, "no records")
	}
	counts, order := map[int]int{}, make([]int, len(req.Records))
	for i, r := range req.Records {
		if s.mu.refuse != nil {
			if err := s.mu.refuse(r); err != nil {
				err.Fields = []api.FieldError{{Pointer: fmt.Sprintf("/records/%d/value", i), Detail: "refused"}}
				return nil, err
			}
		}
		if r.Partition != nil && (r.Key != nil || int(*r.Partition) >= s.mu.partitions) {
			e := api.Errorf(api.CodeUnknownPartition, "no such partition")
			e.Fields = []api.FieldError{{Pointer: fmt.Sprintf("/records/%d/partition", i), Detail: "no"}}
			return nil, e
		}
		order[i] = s.partitionLocked(req, r)
		counts[order[i]]++
	}
	bases, duplicate := map[int]int64{}, false
	if p := req.Producer; p != nil {
		var err *api.Error
		if bases, duplicate, err = s.judgeLocked(p, counts); err != nil {
			return nil, err
		}
	}
	if !duplicate {
		for q, n := range counts {
			bases[q] = int64(len(s.mu.logs[q]))
			if p := req.Producer; p != nil {
				key := fmt.Sprintf("%s/%d", p.Id, q)
				if s.mu.windows[key] == nil {
					s.mu.windows[key] = &producerWindow{answers: map[int64]producerAnswer{}}
				}
				s.mu.windows[key].highest = p.Sequence
				s.mu.windows[key].answers[p.Sequence] = producerAnswer{bases[q], n}
			}
		}
		s.mu.sizes = append(s.mu.sizes, len(req.Records))
	}
	out := &forebayv1.PublishResponse{Duplicate: duplicate}
	for i, q := range order {
		if !duplicate {
			s.mu.logs[q] = append(s.mu.logs[q], string(req.Records[i].Value))
		}
		out.Records = append(out.Records, &forebayv1.Position{Partition: int32(q), Offset: bases[q]})
		bases[q]++
	}
	return out, nil
}

// judgeLocked decides as the metadata log does: by the epoch, then by each partition's window, all or none.
func (s *producerServer) judgeLocked(p *forebayv1.Producer, counts map[int]int) (bases map[int]int64, duplicate bool, err *api.Error) {
	switch epoch := s.mu.epochs[p.Id]; {
	case p.Epoch < epoch:
		return nil, false, api.Errorf(api.CodeProducerFenced, "epoch %d is older than %d", p.Epoch, epoch)
	case p.Epoch > epoch:
		return nil, false, api.Errorf(api.CodeInvalidRequest, "epoch %d was never started", p.Epoch)
	}
	bases = map[int]int64{}
	for q, n := range counts {
		w := s.mu.windows[fmt.Sprintf("%s/%d", p.Id, q)]
		if w == nil || p.Sequence > w.highest {
			continue
		}
		a, known := w.answers[p.Sequence]
		if !known || a.records != n {
			return nil, false, api.Errorf(api.CodeConflict, "sequence %d is below the highest of partition %d and was never accepted", p.Sequence, q)
		}
		bases[q] = a.base
	}
	if len(bases) > 0 && len(bases) < len(counts) {
		return nil, false, api.Errorf(api.CodeConflict, "not a repeat of one request")
	}
	return bases, len(bases) > 0, nil
}

// forget drops a session that was not used for long.
func (s *producerServer) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.floor = max(s.mu.floor, s.mu.epochs[id])
	delete(s.mu.epochs, id)
}

// succeed starts a session as another process of the same ID does.
func (s *producerServer) succeed(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.epochs[id] = max(s.mu.epochs[id], s.mu.floor) + 1
}

// values gives what a partition holds.
func (s *producerServer) values(q int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.mu.logs[q]...)
}
