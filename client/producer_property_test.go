package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// sentRecord is a record of the property test with its outcome. Its value is "sender.lane:number", where number rises by lane in the
// order of Send.
type sentRecord struct {
	value string
	at    Position
	err   error
	taken bool // by Send
}

// checkSent holds outcomes against the log. It returns what is wrong.
//
//   - A success is in the log once, and where its position says.
//   - remapped: the number of partitions was raised meanwhile. A key's request that is repeated after that goes to another partition, where the
//     server cannot recognise it: one copy in each of the two is possible, and where it does recognise it, it takes the first one's
//     positions for those of other records.
//   - A failure that is Definite or Retriable is not in the log. An Indefinite one is there at most once.
//   - In a partition, the records of one lane are in the order of Send, whatever became of them.
func checkSent(logs [][]string, sent []sentRecord, remapped bool) []string {
	var faults []string
	faultf := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	count := map[string]int{}
	for q, log := range logs {
		last := map[string]int{}
		for offset, v := range log {
			count[v]++
			lane, number, _ := strings.Cut(v, ":")
			n, err := strconv.Atoi(number)
			if err != nil {
				faultf("partition %d offset %d: %q was never sent", q, offset, v)
			}
			if before, ok := last[lane]; ok && n <= before {
				faultf("partition %d offset %d: %s is behind number %d", q, offset, v, before)
			}
			last[lane] = n
		}
	}
	for _, r := range sent {
		n := count[r.value]
		delete(count, r.value)
		if remapped && n == 2 && !strings.Contains(r.value, "pinned") && !doubled(logs, r.value) {
			n = 1
		}
		outcome, _ := Classify(r.err)
		switch {
		case outcome == Succeeded && n != 1:
			faultf("%s was acknowledged and is there %d times", r.value, n)
		case outcome == Succeeded && r.at.Offset >= 0 && !remapped && (int(r.at.Offset) >= len(logs[r.at.Partition]) || logs[r.at.Partition][r.at.Offset] != r.value):
			faultf("%s is not at %v", r.value, r.at)
		case outcome == Indefinite && n > 1:
			faultf("%s of unknown outcome is there %d times", r.value, n)
		case (outcome == Definite || outcome == Retriable) && n != 0:
			faultf("%s failed as %s and is there %d times: %v", r.value, outcome, n, r.err)
		}
	}
	for v, n := range count {
		faultf("%s is there %d times and was never sent", v, n)
	}
	return faults
}

// doubled says whether a partition holds a value twice.
func doubled(logs [][]string, value string) bool {
	for _, log := range logs {
		n := 0
		for _, v := range log {
			if v == value {
				n++
			}
		}
		if n > 1 {
			return true
		}
	}
	return false
}

// TestCheckSent: the checker finds what it is there for.
func TestCheckSent(t *testing.T) {
	definite := &DeliveryError{Outcome: Definite}
	unknown := &DeliveryError{Outcome: Indefinite}
	for name, c := range map[string]struct {
		log  []string
		sent []sentRecord
		ok   bool
	}{
		"good":                  {[]string{"a:1", "b:1", "a:2"}, []sentRecord{{"a:1", Position{0, 0}, nil, true}, {"a:2", Position{0, 2}, nil, true}, {"b:1", Position{0, -1}, unknown, true}}, true},
		"lost":                  {nil, []sentRecord{{"a:1", Position{0, 0}, nil, true}}, false},
		"twice":                 {[]string{"a:1", "a:1"}, []sentRecord{{"a:1", Position{0, 0}, nil, true}}, false},
		"somewhere else":        {[]string{"b:1", "a:1"}, []sentRecord{{"a:1", Position{0, 0}, nil, true}, {"b:1", Position{0, 0}, nil, true}}, false},
		"swapped":               {[]string{"a:2", "a:1"}, []sentRecord{{"a:1", Position{0, 1}, nil, true}, {"a:2", Position{0, 0}, nil, true}}, false},
		"swapped, one unknown":  {[]string{"a:2", "a:1"}, []sentRecord{{"a:1", Position{}, unknown, true}, {"a:2", Position{0, 0}, nil, true}}, false},
		"refused, yet there":    {[]string{"a:1"}, []sentRecord{{"a:1", Position{}, definite, true}}, false},
		"unknown, there twice":  {[]string{"a:1", "a:1"}, []sentRecord{{"a:1", Position{}, unknown, true}}, false},
		"unknown, not there":    {nil, []sentRecord{{"a:1", Position{}, unknown, true}}, true},
		"refused and not there": {nil, []sentRecord{{"a:1", Position{}, definite, true}}, true},
		"never sent":            {[]string{"a:1"}, nil, false},
	} {
		if faults := checkSent([][]string{c.log}, c.sent, false); (len(faults) == 0) != c.ok {
			t.Errorf("%s: %v", name, faults)
		}
	}
}

// producerSeeds are how many runs TestProducerProperty makes; FOREBAY_PRODUCER_SEEDS changes it.
func producerSeeds(t *testing.T) uint64 {
	s := os.Getenv("FOREBAY_PRODUCER_SEEDS")
	if s == "" {
		return 120
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestProducerProperty: whatever the network does, what the producer says of a record is true, and the order of Send holds. Every run is
// drawn from its seed.
func TestProducerProperty(t *testing.T) {
	outcomes := map[Outcome]int{}
	for seed := range producerSeeds(t) {
		var counts map[Outcome]int
		ok := t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { counts = runProducer(t, seed) })
		})
		if !ok {
			t.Fatalf("seed %d", seed)
		}
		for o, n := range counts {
			outcomes[o] += n
		}
	}
	t.Logf("%v", outcomes)
	if outcomes[Succeeded] == 0 || outcomes[Indefinite] == 0 || outcomes[Retriable] == 0 || outcomes[Definite] == 0 {
		t.Errorf("outcomes %v: the runs do not reach all of them", outcomes)
	}
}

// runProducer makes one run: some senders with keys of their own, a network with faults, and sometimes a topic that gains partitions, a
// session that the server forgets, a successor that fences the producer, or a Close that runs out of patience.
func runProducer(t *testing.T, seed uint64) map[Outcome]int {
	rng := rand.New(rand.NewPCG(seed, 1))
	odds := func(n int) bool { return rng.IntN(n) == 0 }
	scale := rng.Float64() * 0.4
	faults := producerFaults{
		loseRequest: rng.Float64() * scale, loseAnswer: rng.Float64() * scale, ghost: rng.Float64(), refuse: rng.Float64() * scale,
		unknown: rng.Float64() * scale, proxy: rng.Float64() * scale, slow: rng.Float64() * scale,
	}
	if odds(8) { // mostly unreachable
		faults.loseRequest, faults.loseAnswer, faults.ghost = 0.6, 0.5, 0.8
	}
	partitions := 1 + rng.IntN(6)
	s := newProducerServer(seed, partitions, faults)
	s.mu.hidden = odds(10)
	hidden := s.mu.hidden
	deadline := []time.Duration{300 * time.Millisecond, 3 * time.Second, time.Minute}[rng.IntN(3)]
	opts := []ProducerOption{
		WithProducerInFlight(1 + rng.IntN(5)), WithProducerBatchRecords(1 + rng.IntN(20)), WithProducerLinger(time.Duration(rng.IntN(10)) * time.Millisecond),
		WithProducerDeadline(deadline), WithProducerBuffer(int64(200 + rng.IntN(5000))),
	}
	named := odds(2)
	if named {
		opts = append(opts, WithProducerID("p"))
	}
	if odds(6) {
		opts = append(opts, WithProducerStopOnFailure())
	}
	once := odds(8)
	if once { // what has an unknown outcome may then come in late
		opts = append(opts, WithoutProducerIdempotence())
	}
	var calls struct {
		sync.Mutex
		last map[string]int
		n    int
	}
	calls.last = map[string]int{}
	called := odds(2)
	if called {
		opts = append(opts, WithProducerCallback(func(r Record, _ Position, _ error) {
			calls.Lock()
			defer calls.Unlock()
			calls.n++
			lane, number, _ := strings.Cut(r.ID, ":")
			n, _ := strconv.Atoi(number)
			if before, ok := calls.last[lane]; ok && n <= before {
				t.Errorf("the callback for %s comes behind that for number %d", r.ID, before)
			}
			calls.last[lane] = n
		}))
	}
	p, err := NewProducer(s.client(), "t", opts...)
	if err != nil {
		t.Fatal(err)
	}

	var disturbed []func()
	disturb := func(fn func()) { disturbed = append(disturbed, fn) }
	raised := false
	if odds(4) {
		raised = true
		disturb(func() { s.mu.Lock(); s.mu.partitions += 1 + rng.IntN(4); s.mu.Unlock() })
	}
	var successors []sentRecord
	if odds(3) && named && !once {
		disturb(func() { // another process takes over, and writes
			next, err := NewProducer(s.client(), "t", append(opts[:len(opts):len(opts)], WithProducerCallback(nil))...)
			if err != nil {
				t.Error(err)
				return
			}
			successors = sendRecords(t, next, rand.New(rand.NewPCG(seed, 99)), 9, partitions, false, false)
			_ = next.Close(context.Background())
		})
	}
	if odds(4) {
		disturb(func() { s.forget(p.ID()) })
	}
	if odds(6) {
		disturb(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(300))*time.Millisecond)
			defer cancel()
			_ = p.Close(ctx)
		})
	}

	senders := 1 + rng.IntN(3)
	sent := make([][]sentRecord, senders)
	done := make(chan struct{}, senders)
	for i := range senders {
		rng := rand.New(rand.NewPCG(seed, uint64(100+i)))
		go func() {
			defer func() { done <- struct{}{} }()
			sent[i] = sendRecords(t, p, rng, i, partitions, partitions == 1 && !raised && !hidden && !once, once)
		}()
	}
	for _, fn := range disturbed {
		_ = nap(t.Context(), time.Duration(rng.IntN(500))*time.Millisecond)
		fn()
	}
	for range senders {
		<-done
	}
	if odds(2) {
		_ = p.Flush(t.Context())
	}
	_ = p.Close(context.Background())
	s.ghosts.Wait()
	if n := p.budget.inUse(); n != 0 {
		t.Errorf("%d bytes of the buffer are still in use", n)
	}

	taken := 0
	for _, list := range sent {
		for _, r := range list {
			if r.taken {
				taken++
			}
		}
	}
	if called && calls.n != taken {
		t.Errorf("the callback was called %d times for %d records", calls.n, taken)
	}
	all := successors
	counts := map[Outcome]int{}
	for _, list := range sent {
		for _, r := range list {
			outcome, _ := Classify(r.err)
			counts[outcome]++
		}
		all = append(all, list...)
	}
	var logs [][]string
	for q := range s.mu.partitions {
		logs = append(logs, s.values(q))
	}
	if !raised && len(successors) == 0 && s.mu.overlaps > 0 {
		t.Errorf("%d times a request met another one of its partition", s.mu.overlaps)
	}
	faultsFound := checkSent(logs, all, raised)
	for _, f := range faultsFound[:min(len(faultsFound), 10)] {
		t.Error(f)
	}
	return counts
}

// sendRecords sends some records and waits for what becomes of them. Each key has a lane, each pinned partition too, and, where the topic
// has one partition, everything that the sender sends is one. unordered: each record has a lane of its own.
func sendRecords(t *testing.T, p *Producer, rng *rand.Rand, sender, partitions int, single, unordered bool) []sentRecord {
	n := 20 + rng.IntN(100)
	var sent []sentRecord
	var deliveries []*Delivery
	var places []int
	for number := range n {
		var r Record
		lane := fmt.Sprint(sender, ".")
		switch kind := rng.IntN(4); kind {
		case 0: // without a key: an order only where there is one partition
			lane += fmt.Sprint("free", number)
		case 1:
			r.Pinned, r.Partition = true, int32(rng.IntN(partitions))
			lane += fmt.Sprint("pinned", r.Partition)
		default:
			r.Key = fmt.Append(nil, sender, "-", rng.IntN(5))
			lane += string(r.Key)
		}
		if single {
			lane = fmt.Sprint(sender, ".all")
		}
		if unordered {
			lane = fmt.Sprint(sender, ".", number)
		}
		value := fmt.Sprint(lane, ":", number)
		r.Value, r.Kind, r.ID = []byte(value), KindText, value
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if rng.IntN(10) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(50))*time.Millisecond)
		}
		d, err := p.Send(ctx, r)
		cancel()
		sent = append(sent, sentRecord{value: value, err: err, taken: err == nil})
		if err != nil {
			if outcome, _ := Classify(err); outcome != Definite && outcome != Retriable {
				t.Errorf("Send failed as %s: %v", outcome, err)
			}
		} else {
			deliveries, places = append(deliveries, d), append(places, len(sent)-1)
		}
		for i := range r.Value {
			r.Value[i] = '!' // the record is the caller's again
		}
		if rng.IntN(5) == 0 {
			_ = nap(t.Context(), time.Duration(rng.IntN(40))*time.Millisecond)
		}
	}
	for i, d := range deliveries {
		at, err := d.Wait(t.Context())
		if err != nil {
			var e *DeliveryError
			if !errors.As(err, &e) {
				t.Errorf("%v is not a DeliveryError", err)
			}
		}
		sent[places[i]].at, sent[places[i]].err = at, err
	}
	return sent
}
