package metadata

import (
	"crypto/sha256"
	"fmt"
	"math"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/internal/failpoint"
)

// Bounds of what is remembered of producers. They are part of the state's definition: every node must use the same.
const (
	producerTTL             = int64(7 * 24 * 3600 * 1000) // ms without use after which a producer is forgotten
	maxProducers            = 10_000                      // windows of one partition
	smallPartitionProducers = 8                           // up to here a partition's windows are searched along their list, without a map
	sweepBudget             = 4                           // expired windows and sessions dropped by one commit, beside one a new window
)

// producer is one producer ID of a tenant. It lives while it has a session or a window.
type producer struct {
	tenant  *tenant
	id      string
	epoch   int64    // of the running session; 0 = none was started
	nonce   [16]byte // of the running session's start
	lastUse int64    // Unix ms by the shard's clock; only with a session
	windows int32
	node    node[producer] // in State.sessions while epoch > 0
}

type producerKey struct {
	tenant *tenant
	id     string
}

func hashNonce(s string) (h [16]byte) {
	if s == "" {
		return h
	}
	sum := sha256.Sum256([]byte(s))
	copy(h[:], sum[:])
	return h
}

func (s *State) getProducer(t *tenant, id string) *producer {
	k := producerKey{t, id}
	p := s.producers[k]
	if p == nil {
		p = &producer{tenant: t, id: id}
		p.node.owner = p
		s.producers[k] = p
		t.producers++
	}
	return p
}

func (s *State) releaseProducer(p *producer) {
	if p.epoch > 0 || p.windows > 0 {
		return
	}
	delete(s.producers, producerKey{p.tenant, p.id})
	p.tenant.producers--
	s.releaseTenant(p.tenant)
}

// startSession applies ProducerEpoch. An expired session leaves its epoch as a floor for the shard's new sessions, so that no epoch
// of a producer is ever given twice.
func (s *State) startSession(c *ProducerEpoch) Result {
	if ShardOf(c.Tenant, s.shards) != s.shard {
		return Result{Err: api.Errorf(api.CodeInvalidRequest, "the tenant belongs to another shard")}
	}
	s.advance(c.Now)
	p := s.getProducer(s.getTenant(c.Tenant), c.ID)
	nonce := hashNonce(c.Nonce)
	if p.epoch > 0 && nonce != [16]byte{} && p.nonce == nonce {
		return Result{Epoch: p.epoch}
	}
	from := p.epoch
	if from == 0 {
		from = s.epochFloor
	}
	if from == math.MaxInt64 {
		s.releaseProducer(p)
		return Result{Err: api.Errorf(api.CodeConflict, "the producer has used up its epochs")}
	}
	p.epoch, p.nonce = from+1, nonce
	s.touchSession(p)
	s.sweepProducers(0)
	return Result{Epoch: p.epoch}
}

func (s *State) touchSession(p *producer) {
	if p.epoch > 0 {
		p.lastUse = s.clock
		s.sessions.toBack(&p.node)
	}
}

// checkEpoch fences a request by its producer's session. Without a session only epoch 0 is right.
func checkEpoch(p *producer, want *Producer) error {
	var epoch int64
	if p != nil {
		epoch = p.epoch
	}
	switch {
	case want.Epoch < epoch && want.Sequence == NoSequence && failpoint.Enabled(failpoint.NoGroupFence):
	case want.Epoch < epoch:
		return api.Errorf(api.CodeProducerFenced, "producer epoch %d is older than the running session's %d", want.Epoch, epoch).
			With("epoch", epoch)
	case want.Epoch > epoch:
		return api.Errorf(api.CodeInvalidRequest, "producer epoch %d was never started or has been forgotten after 7 days without use (the running session has %d): start a session first",
			want.Epoch, epoch).With("epoch", epoch)
	}
	return nil
}

// sweepProducers forgets what was not used for 7 days, oldest first: a bounded number, so that no entry takes long.
func (s *State) sweepProducers(added int) {
	cutoff := s.clock - producerTTL
	for i := 0; i < sweepBudget+added; i++ {
		w := s.windows.front()
		if w == nil || w.lastUse >= cutoff {
			break
		}
		s.dropWindow(w)
	}
	for i := 0; i < sweepBudget; i++ {
		p := s.sessions.front()
		if p == nil || p.lastUse >= cutoff {
			break
		}
		s.sessions.remove(&p.node)
		s.epochFloor = max(s.epochFloor, p.epoch)
		p.epoch, p.lastUse, p.nonce = 0, 0, [16]byte{}
		s.releaseProducer(p)
	}
}

// ProducerEpoch gives the epoch of the producer's running session, or false when it has none.
func (s *State) ProducerEpoch(tenant, id string) (int64, bool) {
	p := s.producers[producerKey{s.tenants[tenant], id}]
	if p == nil || p.epoch == 0 {
		return 0, false
	}
	return p.epoch, true
}

// ProducerPositions gives the highest accepted sequence of a producer for each partition of the topic that remembers one, ascending by
// partition. With topic "" it goes over all topics of the tenant, by name.
func (s *State) ProducerPositions(tenantName, id, topicName string) []ProducerPosition {
	t := s.tenants[tenantName]
	if t == nil {
		return nil
	}
	p := s.producers[producerKey{t, id}]
	if p == nil || p.windows == 0 {
		return nil
	}
	topics := t.order
	if topicName != "" {
		one := t.byName[topicName]
		if one == nil {
			return nil
		}
		topics = []*topic{one}
	}
	var out []ProducerPosition
	for _, t := range topics {
		for _, part := range t.parts {
			if part.more == nil {
				continue
			}
			if w := part.more.windows.find(p); w != nil {
				out = append(out, ProducerPosition{Topic: t.name, Partition: part.num, Sequence: w.lastSequence()})
			}
		}
	}
	return out
}

// node is an element of a list that is part of what it lists.
type node[T any] struct {
	prev, next *node[T]
	owner      *T
	linked     bool
}

// list is doubly linked, least recently used first. The zero value is empty.
type list[T any] struct {
	head, tail *node[T]
	n          int
}

func (l *list[T]) front() *T {
	if l.head == nil {
		return nil
	}
	return l.head.owner
}

func (l *list[T]) toBack(e *node[T]) {
	if l.tail == e {
		return
	}
	l.remove(e)
	e.prev, e.next, e.linked = l.tail, nil, true
	if l.tail != nil {
		l.tail.next = e
	} else {
		l.head = e
	}
	l.tail = e
	l.n++
}

func (l *list[T]) remove(e *node[T]) {
	if !e.linked {
		return
	}
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.head = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.tail = e.prev
	}
	e.prev, e.next, e.linked = nil, nil, false
	l.n--
}

func (l *list[T]) all(yield func(*T) bool) {
	for e := l.head; e != nil; e = e.next {
		if !yield(e.owner) {
			return
		}
	}
}

func (p *producer) String() string { return fmt.Sprintf("%s/%s", p.tenant.name, p.id) }
