package ingest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metafault"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/faults"
)

const simSeeds = 200

// sim is one run: producers of several kinds publish through nodes that fail and die, all drawn from the seed.
type sim struct {
	*world
	topics []*metadata.Topic // the last one compares event IDs
	nodes  struct {
		sync.Mutex
		live []*worldNode
	}
	acks struct {
		sync.Mutex
		at      map[string]position // every acknowledged value
		refused map[string]bool     // values whose every attempt was definitely refused
	}
}

type position struct {
	topicPartition
	offset int64
}

// TestSimulation checks the promise of the append path, for many seeds: no acknowledged record is lost, none moves, no offset is given
// twice, what was definitely refused is not there, a producer's records stand in its order and exactly once, and a repeated request is
// answered with the first answer.
func TestSimulation(t *testing.T) {
	for seed := range uint64(simSeeds) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { simulate(t, seed) }) }) {
			return // the first failing seed is enough to look at
		}
	}
}

func simulate(t *testing.T, seed uint64) {
	s := &sim{world: newWorld(t, seed)}
	s.acks.at, s.acks.refused = map[string]position{}, map[string]bool{}
	s.topics = []*metadata.Topic{s.topic("a", 3, 0), s.topic("b", 2, 0), s.topic("ids", 2, time.Hour)}
	rng := rand.New(rand.NewPCG(seed, 7))
	s.rules = []faults.Rule{
		{Ops: []objectstore.Op{objectstore.OpPut}, Latency: faults.Latency{P50: 5 * time.Millisecond, P99: time.Duration(6+rng.IntN(100)) * time.Millisecond}},
		{Ops: []objectstore.Op{objectstore.OpPut}, Error: faults.Unavailable, Probability: 0.01 + 0.2*rng.Float64()},
		{Ops: []objectstore.Op{objectstore.OpPut}, Error: faults.Lost, Probability: 0.01 + 0.1*rng.Float64()},
		{Ops: []objectstore.Op{objectstore.OpPut}, Error: faults.Late, LateBy: 300 * time.Millisecond, Probability: 0.01 + 0.1*rng.Float64()},
	}
	s.rates = metafault.Rates{Refused: 0.1 * rng.Float64(), Lost: 0.2 * rng.Float64(), Broken: 0.05 * rng.Float64(), MaxDelay: 30 * time.Millisecond}
	s.options = func(o *Options) {
		o.SegmentBytes = 200 + rng.IntN(2000)
		o.BatchBytes = 100 + rng.IntN(500)
		o.UploadConcurrency = 1 + rng.IntN(4)
	}
	s.nodes.live = []*worldNode{s.node(), s.node()}

	var clients sync.WaitGroup
	for c := range 3 {
		clients.Go(func() { s.sequenced(c, rand.New(rand.NewPCG(seed, uint64(100+c)))) })
		clients.Go(func() { s.plain(c, rand.New(rand.NewPCG(seed, uint64(200+c)))) })
	}
	clients.Go(func() { s.withIDs(rand.New(rand.NewPCG(seed, 300))) })
	done := make(chan struct{})
	go func() { clients.Wait(); close(done) }()
	s.crash(rng, done)

	for _, n := range s.nodes.live {
		n.stop()
	}
	s.ending.Wait()
	time.Sleep(time.Second) // late writes
	s.check()
	s.close()
}

// crash kills a node now and then and starts another in its place, until the clients are done.
func (s *sim) crash(rng *rand.Rand, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(rng.IntN(1200)) * time.Millisecond):
		}
		s.nodes.Lock()
		i := rng.IntN(2)
		old := s.nodes.live[i]
		s.nodes.Unlock()
		old.kill()
		n := s.node()
		s.nodes.Lock()
		s.nodes.live[i] = n
		s.nodes.Unlock()
	}
}

func (s *sim) pick(rng *rand.Rand) *worldNode {
	s.nodes.Lock()
	defer s.nodes.Unlock()
	return s.nodes.live[rng.IntN(2)]
}

// attempt publishes once. known is false when the outcome is not.
func (s *sim) attempt(rng *rand.Rand, q *Request) (res *Result, known bool) {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Duration(20+rng.IntN(1500))*time.Millisecond)
	defer cancel()
	res, err := s.pick(rng).append(ctx, q)
	switch code := api.CodeOf(err); {
	case err == nil:
		return res, true
	case errors.Is(err, errCrashed), code == api.CodeOutcomeUnknown:
		return nil, false
	case api.Codes[code].Retriable:
		return nil, true
	default:
		s.t.Errorf("append: %v", err)
		return nil, true
	}
}

// request draws the records of one publish, all values unique.
func (s *sim) request(rng *rand.Rand, name string, topics []*metadata.Topic, ids bool) *Request {
	q := &Request{Tenant: "t"}
	for i, tp := range topics {
		tr := TopicRecords{Topic: tp}
		for k := range 1 + rng.IntN(5) {
			r := record(fmt.Sprintf("%s/%d.%d", name, i, k))
			if ids {
				r.ID = string(r.Value)
			}
			tr.Records = append(tr.Records, r)
			tr.Partitions = append(tr.Partitions, int32(rng.IntN(tp.Config.Partitions)))
		}
		q.Topics = append(q.Topics, tr)
	}
	return q
}

// acknowledged notes where the records of q are. A second acknowledgement must name the same places.
func (s *sim) acknowledged(q *Request, res *Result) {
	s.acks.Lock()
	defer s.acks.Unlock()
	for t, tr := range q.Topics {
		for i := range tr.Records {
			at := position{topicPartition{tr.Topic.ID, tr.Partitions[i]}, res.Topics[t].Offsets[i]}
			value := string(tr.Records[i].Value)
			if before, ok := s.acks.at[value]; ok && before != at {
				s.t.Errorf("%s was acknowledged at %v and at %v", value, before, at)
			}
			s.acks.at[value] = at
		}
	}
}

// sequenced is an idempotent producer: it repeats each request until it is acknowledged, and some once more.
func (s *sim) sequenced(c int, rng *rand.Rand) {
	for seq := range int64(12) {
		topics := s.topics[:1+rng.IntN(2)]
		q := s.request(rng, fmt.Sprintf("seq-%d/%03d", c, seq), topics, false)
		q.Producer = &metadata.Producer{ID: fmt.Sprint("producer-", c), Sequence: seq}
		repeat := rng.IntN(4) == 0
		for {
			res, _ := s.attempt(rng, q)
			if res == nil {
				time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
				continue
			}
			s.acknowledged(q, res)
			if !repeat {
				break
			}
			repeat = false
			for res = nil; res == nil; res, _ = s.attempt(rng, q) {
			}
			if !res.Duplicate {
				s.t.Errorf("sequence %d of producer %d, repeated, is not called a duplicate", seq, c)
			}
			s.acknowledged(q, res)
			break
		}
	}
}

// plain is a producer without sequences: it repeats only what was definitely refused.
func (s *sim) plain(c int, rng *rand.Rand) {
	for i := range 12 {
		q := s.request(rng, fmt.Sprintf("plain-%d/%03d", c, i), s.topics[:1+rng.IntN(2)], false)
		refused := true
		for try := range 4 {
			res, known := s.attempt(rng, q)
			if res != nil {
				s.acknowledged(q, res)
				if res.Duplicate {
					s.t.Errorf("try %d of a request without a sequence is called a duplicate", try)
				}
			}
			if refused = known && res == nil; !refused {
				break
			}
			time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
		}
		if refused {
			s.acks.Lock()
			for _, tr := range q.Topics {
				for i := range tr.Records {
					s.acks.refused[string(tr.Records[i].Value)] = true
				}
			}
			s.acks.Unlock()
		}
	}
}

// withIDs repeats until acknowledged, with event IDs instead of a sequence; every request carries a record of the one before as well.
func (s *sim) withIDs(rng *rand.Rand) {
	var last *TopicRecords
	for i := range 10 {
		q := s.request(rng, fmt.Sprintf("id/%03d", i), s.topics[2:], true)
		tr := &q.Topics[0]
		if last != nil {
			tr.Records = append(tr.Records, last.Records[0])
			tr.Partitions = append(tr.Partitions, last.Partitions[0])
		}
		for {
			if res, _ := s.attempt(rng, q); res != nil {
				s.acknowledged(q, res)
				break
			}
			time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
		}
		last = tr
	}
}

// check compares what a fresh node reads with what was promised.
func (s *sim) check() {
	at := map[string]position{}
	for tp, values := range s.read(s.topics...) {
		last := map[string]string{}
		for off, v := range values {
			if before, ok := at[v]; ok {
				s.t.Errorf("%s is stored twice: %v and %v", v, before, position{tp, int64(off)})
			}
			at[v] = position{tp, int64(off)}
			if len(v) > 3 && v[:3] == "seq" { // names sort as they were sent
				producer := v[:5]
				if last[producer] >= v {
					s.t.Errorf("%v: %s stands behind %s", tp, v, last[producer])
				}
				last[producer] = v
			}
		}
	}
	for v, want := range s.acks.at {
		if got, ok := at[v]; !ok || got != want {
			s.t.Errorf("%s was acknowledged at %v, is at %v (found: %v)", v, want, got, ok)
		}
	}
	for v := range s.acks.refused {
		if got, ok := at[v]; ok {
			s.t.Errorf("%s was refused, and is at %v", v, got)
		}
	}
	if len(s.acks.at) == 0 || !slices.ContainsFunc([]string{"seq-0/000/0.0"}, func(v string) bool { _, ok := s.acks.at[v]; return ok }) {
		s.t.Error("nothing was acknowledged: the simulation did nothing")
	}
}
