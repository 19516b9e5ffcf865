package groups

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
)

// chaos is a group under everything at once: members that join, stall beyond their sessions, leave and come back under their old IDs, through any node;
// nodes that die; a Redis that forgets.
type chaos struct {
	t     *testing.T
	f     *fabric
	topic string
	parts int

	mu    sync.Mutex
	rng   *rand.Rand
	nodes []*node
	seen  map[TopicPartition]map[int64]int // how often each record was processed
	quiet bool                             // no more trouble: work it off
	over  bool
}

func (c *chaos) n(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

func (c *chaos) node() *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[c.rng.IntN(len(c.nodes))]
}

func (c *chaos) is(what *bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *what
}

// work is one member's life.
func (c *chaos) work(i int) {
	p := c.node().peer("g", c.topic)
	if i%2 == 0 {
		p.instance = fmt.Sprintf("pod-%d", i)
	}
	joined := false
	for !c.is(&c.over) {
		time.Sleep(time.Duration(100+c.n(400)) * time.Millisecond)
		p.n = c.node()
		trouble := c.n(100)
		if c.is(&c.quiet) {
			trouble = 100
		}
		switch {
		case trouble == 0: // a new process
			p.id, joined = "", false
			clear(p.at)
		case trouble == 1:
			_ = p.n.Leave(c.t.Context(), named("g"), p.id)
			joined = false
		case trouble == 2:
			joined = false // it joins again for no reason
		case trouble == 3:
			time.Sleep(DefaultSession + 3*time.Second)
		}
		if !joined {
			if err := p.tryJoin(); err != nil {
				c.allowed("join", err)
				continue
			}
			joined = true
		}
		if _, err := p.tryBeat(); err != nil {
			c.allowed("heartbeat", err)
			joined = api.CodeOf(err) != api.CodeStaleGeneration
			continue
		}
		p.letGo()
		polled, err := p.n.Poll(c.t.Context(), PollRequest{Name: named("g"), MemberID: p.id, Generation: p.generation, MaxRecords: 1 + c.n(10)})
		if err != nil { // its answer may be lost: what it would have been is read again after a join
			c.allowed("poll", err)
			joined = false
			continue
		}
		var ats []TopicPartition
		for _, got := range polled {
			c.mu.Lock()
			for r := range got.Records {
				c.seen[got.TopicPartition][got.Records[r].Offset]++
			}
			c.mu.Unlock()
			p.at[got.TopicPartition] = got.NextOffset
			ats = append(ats, got.TopicPartition)
		}
		if trouble == 4 {
			time.Sleep(DefaultSession + 3*time.Second) // with records in its hands
		}
		if len(ats) == 0 {
			continue
		}
		if err := p.commit(ats...); err != nil {
			c.allowed("commit", err)
			joined = false // polls are to go on from what is committed
		}
	}
}

func (c *chaos) allowed(what string, err error) {
	switch api.CodeOf(err) {
	case api.CodeStaleGeneration, api.CodeNotOwner, api.CodeLeasesUnavailable, api.CodeMetadataUnavailable, api.CodeStorageUnavailable, api.CodeOutcomeUnknown:
	default:
		c.t.Errorf("%s: %v", what, err)
	}
}

// trouble does what happens to nodes and to Redis.
func (c *chaos) trouble() {
	for !c.is(&c.quiet) {
		time.Sleep(time.Duration(2+c.n(8)) * time.Second)
		switch c.n(4) {
		case 0:
			c.f.redis.FlushAll()
		case 1:
			c.f.redis.SetError("LOADING Redis is loading the dataset in memory")
			time.Sleep(time.Duration(c.n(3000)) * time.Millisecond)
			c.f.redis.SetError("")
		case 2:
			fresh := c.f.node()
			c.mu.Lock()
			old := c.nodes[0]
			c.nodes = append(c.nodes[1:], fresh)
			c.mu.Unlock()
			old.kill()
		}
	}
}

// Whatever happens: committed offsets never go back, every record is processed, and the lag is 0 in the end.
func TestChaos(t *testing.T) {
	for seed := range uint64(1) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fabric) { runChaos(t, f, seed) })
		})
	}
}

func runChaos(t *testing.T, f *fabric, seed uint64) {
	c := &chaos{t: t, f: f, topic: "orders", parts: 6, rng: rand.New(rand.NewPCG(seed, 5)), seen: map[TopicPartition]map[int64]int{}}
	watcher := f.node()
	for range 3 {
		c.nodes = append(c.nodes, f.node())
	}
	watcher.makeTopic("orders", c.parts)
	for p := range c.parts {
		c.seen[TopicPartition{"orders", int32(p)}] = map[int64]int{}
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { c.work(i) })
	}
	wg.Go(c.trouble)
	total := 0
	highest := map[TopicPartition]int64{}
	look := func() {
		for at, offset := range watcher.committed("g") {
			if offset < highest[at] {
				t.Errorf("%v went from %d back to %d", at, highest[at], offset)
			}
			highest[at] = offset
		}
	}
	time.Sleep(2 * time.Second)
	for range 60 {
		time.Sleep(500 * time.Millisecond)
		for p := range c.parts {
			watcher.publish("orders", int32(p), "v")
			total++
		}
		look()
	}
	c.mu.Lock()
	c.quiet = true
	c.mu.Unlock()
	deadline := time.Now().Add(3 * time.Minute)
	for {
		time.Sleep(time.Second)
		look()
		lag := int64(0)
		d := watcher.describe("g")
		for _, p := range d.Partitions {
			lag += p.Lag
		}
		if lag == 0 && len(d.Partitions) == c.parts && d.State == stateStable && len(d.Members) == 4 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("lag %d, %+v", lag, d)
			break
		}
	}
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	wg.Wait()
	repeats := 0
	for at, offsets := range c.seen {
		for o := range int64(total / c.parts) {
			if offsets[o] == 0 {
				t.Errorf("offset %d of %v was never processed", o, at)
			}
			repeats += max(offsets[o]-1, 0)
		}
	}
	t.Logf("%d records, %d processed again, generation %d", total, repeats, watcher.describe("g").Generation)
}
