package leases

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/segment"
)

// judge watches everything that consumers see and do, by the clock that Redis has too.
type judge struct {
	t        *testing.T
	ordered  bool
	attempts int
	mu       struct {
		sync.Mutex
		flushed   int64 // when Redis was last emptied, Unix ms
		live      map[Target]held
		settled   map[Target]settlement
		forgotten map[Target]bool // settled, but the settling may have been lost: may come again
		keys      map[string]int64
		leases    int
		lost      int
		repeats   int
	}
}

type held struct {
	receipt string
	expires int64
}

type settlement struct {
	at   time.Time
	node *fabricNode
}

func newJudge(t *testing.T, ordered bool, attempts int) *judge {
	j := &judge{t: t, ordered: ordered, attempts: attempts}
	j.mu.live, j.mu.settled, j.mu.forgotten, j.mu.keys = map[Target]held{}, map[Target]settlement{}, map[Target]bool{}, map[string]int64{}
	return j
}

func at(m *Message) Target { return Target{m.Partition, m.Record.Offset} }

// leased: a consumer has a record in hand, for so long. A lease that was granted in the millisecond in which Redis was emptied, or before, may be
// over by the time that the consumer hears of it.
func (j *judge) leased(m *Message, visibility time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.leases++
	if m.ExpiresAt-visibility.Milliseconds() > j.mu.flushed {
		now := time.Now().UnixMilli()
		if h, ok := j.mu.live[at(m)]; ok && now < h.expires {
			j.t.Errorf("%v is leased twice: %s until %d, %s at %d", at(m), h.receipt, h.expires, m.Receipt, now)
		}
		j.mu.live[at(m)] = held{m.Receipt, m.ExpiresAt}
	}
	if int(m.Attempt) > j.attempts {
		j.t.Errorf("%v is at attempt %d of %d", at(m), m.Attempt, j.attempts)
	}
	if s, ok := j.mu.settled[at(m)]; ok {
		j.mu.repeats++
		if !j.mu.forgotten[at(m)] {
			j.t.Errorf("%v was settled %s ago and came again", at(m), time.Since(s.at))
		}
	}
	if j.ordered {
		key := string(m.Record.Key)
		if last, ok := j.mu.keys[key]; ok && last >= m.Record.Offset && !j.mu.forgotten[at(m)] {
			j.t.Errorf("key %s: offset %d came after %d was settled", key, m.Record.Offset, last)
		}
	}
}

// ended: the store has said that the lease is over, by an ack or a nack.
func (j *judge) ended(n *fabricNode, m *Message, acked bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if h := j.mu.live[at(m)]; h.receipt == m.Receipt {
		delete(j.mu.live, at(m))
	}
	if acked {
		j.mu.settled[at(m)] = settlement{time.Now(), n}
		delete(j.mu.forgotten, at(m))
		if key := string(m.Record.Key); j.ordered {
			j.mu.keys[key] = max(j.mu.keys[key], m.Record.Offset)
		}
	}
}

func (j *judge) extended(m *Message, expires int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if h := j.mu.live[at(m)]; h.receipt == m.Receipt {
		j.mu.live[at(m)] = held{m.Receipt, expires}
	}
}

// flush: Redis is about to be emptied. What was settled in the last 100 ms may come again, and what a node had settled that died before the
// others have taken over its marks.
func (j *judge) flush() {
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.mu.live)
	now := time.Now()
	j.mu.flushed = now.UnixMilli()
	for t, s := range j.mu.settled {
		window := 100 * time.Millisecond
		if s.node.dead() {
			window = 3 * time.Second
		}
		if now.Sub(s.at) <= window {
			j.mu.forgotten[t] = true
		}
	}
}

// simulation is one run.
type simulation struct {
	t     *testing.T
	f     *fabric
	j     *judge
	rng   *rand.Rand
	mu    sync.Mutex // rng and nodes
	nodes []*fabricNode
	over  chan struct{}
	all   sync.WaitGroup
}

// node starts a node that looks around less often than nodes do: most of what a run takes is the in-process Redis starting scripts.
func (s *simulation) node() *fabricNode {
	return s.f.node(func(o *Options) { o.SweepInterval = 2 * time.Second })
}

func (s *simulation) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

func (s *simulation) someNode() *fabricNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[s.rng.IntN(len(s.nodes))]
}

func (s *simulation) done() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// poison never gets acked.
func poison(m *Message) bool { return strings.HasPrefix(string(m.Record.Value), "poison") }

// worker leases and does with what it gets what workers do.
func (s *simulation) worker() {
	for !s.done() {
		n := s.someNode()
		r := LeaseRequest{Name: work, Max: 1 + s.draw(12), Wait: time.Duration(s.draw(4)) * time.Second, Visibility: time.Duration(1+s.draw(3)) * time.Second}
		ms, err := n.engine.Lease(s.t.Context(), r)
		if err != nil || len(ms) == 0 || n.dead() {
			time.Sleep(time.Duration(1+s.draw(200)) * time.Millisecond)
			continue
		}
		for i := range ms {
			s.j.leased(&ms[i], r.Visibility)
		}
		if s.draw(20) == 0 {
			continue // it dies
		}
		for i := range ms {
			s.handle(n, &ms[i])
		}
	}
}

func (s *simulation) handle(n *fabricNode, m *Message) {
	settle := func(kind SettleKind) {
		at := s.someNode() // any node will do
		delay := time.Duration(s.draw(500)) * time.Millisecond
		rs, err := at.engine.Settle(s.t.Context(), SettleRequest{Name: work, Kind: kind, Receipts: []string{m.Receipt}, Delay: &delay, Visibility: 2 * time.Second})
		if err != nil || at.dead() {
			if kind == Ack { // whether it took effect nobody knows
				s.j.mu.Lock()
				s.j.mu.settled[Target{m.Partition, m.Record.Offset}] = settlement{time.Now(), at}
				s.j.mu.forgotten[Target{m.Partition, m.Record.Offset}] = true
				s.j.mu.Unlock()
			}
			return
		}
		switch {
		case rs[0].Code != "":
			s.j.mu.Lock()
			s.j.mu.lost++
			s.j.mu.Unlock()
		case kind == Extend:
			s.j.extended(m, rs[0].ExpiresAt)
		default:
			s.j.ended(at, m, kind == Ack)
		}
	}
	time.Sleep(time.Duration(s.draw(30)) * time.Millisecond)
	switch draw := s.draw(20); {
	case poison(m) || draw == 0:
		settle(Nack)
	case draw == 1:
		time.Sleep(4 * time.Second) // stalls past the lease
		settle(Ack)
	case draw == 2:
		settle(Extend)
		time.Sleep(time.Second)
		settle(Ack)
	case draw == 3: // forgets it
	default:
		settle(Ack)
	}
}

// chaos does to nodes and Redis what happens to them.
func (s *simulation) chaos() {
	for !s.done() {
		time.Sleep(time.Duration(300+s.draw(3000)) * time.Millisecond)
		switch s.draw(5) {
		case 0, 1:
			s.j.flush()
			s.f.redis.FlushAll()
		case 2:
			fresh := s.node()
			s.mu.Lock()
			i := s.rng.IntN(len(s.nodes))
			old := s.nodes[i]
			s.nodes[i] = fresh
			s.mu.Unlock()
			old.kill()
		case 3:
			s.f.redis.SetError("LOADING Redis is loading the dataset in memory")
			time.Sleep(time.Duration(s.draw(1500)) * time.Millisecond)
			s.f.redis.SetError("")
		}
	}
}

func simulate(t *testing.T, seed uint64, ordered bool) {
	synctest.Test(t, func(t *testing.T) {
		const partitions, records, attempts = 3, 240, 12
		f := newFabric(t)
		s := &simulation{t: t, f: f, j: newJudge(t, ordered, attempts), rng: rand.New(rand.NewPCG(seed, 1)), over: make(chan struct{})}
		for range 2 {
			s.nodes = append(s.nodes, s.node())
		}
		n := s.node() // it publishes and watches
		n.topic("orders", partitions, nil)
		n.subscribe(work, func(c *api.SubscriptionConfig) {
			c.MaxAttempts = attempts
			if ordered {
				c.Ordering = api.OrderingKey
			}
		})
		poisoned := 0
		s.all.Go(s.chaos)
		for range 6 {
			s.all.Go(s.worker)
		}
		for i := range records {
			r := segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindText, Value: fmt.Appendf(nil, "v%d", i)}
			r.Key = fmt.Appendf(nil, "k%d", s.draw(9))
			if s.draw(60) == 0 {
				r.Value = fmt.Appendf(nil, "poison%d", i)
				poisoned++
			}
			if s.draw(30) == 0 {
				r.DeliverAt = time.Now().Add(time.Duration(s.draw(5000)) * time.Millisecond).UnixMilli()
			}
			n.append("orders", int32(api.PartitionForKey(r.Key, partitions)), []segment.Record{r})
			time.Sleep(time.Duration(s.draw(60)) * time.Millisecond)
		}
		deadline := time.Now().Add(15 * time.Minute)
		for left := int64(-1); left != 0; {
			time.Sleep(time.Second)
			st, err := n.engine.Subscription(t.Context(), work)
			if err != nil {
				continue
			}
			left = 0
			dead := int64(0)
			for _, p := range st.Partitions {
				left += p.Lag + p.Delayed + p.Owed
				dead += p.DeadLetters
			}
			if time.Now().After(deadline) {
				t.Errorf("seed %d: not worked off: %+v", seed, st.Partitions)
				break
			}
			if left == 0 && int(dead) != poisoned {
				t.Errorf("seed %d: %d dead letters, %d poisoned", seed, dead, poisoned)
			}
		}
		close(s.over)
		s.all.Wait()
		f.redis.SetError("")
		s.j.mu.Lock()
		defer s.j.mu.Unlock()
		if settled := len(s.j.mu.settled); settled != records-poisoned {
			t.Errorf("seed %d: %d records were settled, %d should have been", seed, settled, records-poisoned)
		}
		t.Logf("seed %d: %d leases, %d receipts lost, %d repeats, %d poisoned", seed, s.j.mu.leases, s.j.mu.lost, s.j.mu.repeats, poisoned)
	})
}

// seedCount is how many seeds a run tries; FOREBAY_SEEDS tries others.
func seedCount(t *testing.T, usual uint64) uint64 {
	if v := os.Getenv("FOREBAY_SEEDS"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return usual
}

// TestSimulation works off a topic with workers, nodes and a Redis that misbehave. Whatever happens: every record is settled, no two consumers hold
// one record at the same time, nothing settled comes again but for what a loss may cost, attempts are counted right.
func TestSimulation(t *testing.T) {
	seeds := seedCount(t, 2)
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { simulate(t, seed, false) })
	}
}

// TestSimulationOrdered is the same with ordering by key: per key records are settled in order.
func TestSimulationOrdered(t *testing.T) {
	seeds := seedCount(t, 1)
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { simulate(t, seed+100, true) })
	}
}
