package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/forebaymq/forebay/api"
)

// lookAgain is how long the number of the topic's partitions is taken for granted.
const lookAgain = 5 * time.Minute

// resolveTime bounds the question what became of a request whose deadline has passed.
const resolveTime = 5 * time.Second

// producerOpening is one attempt to learn what a Producer must know before it takes records. Everybody who calls Send meanwhile waits for
// it.
type producerOpening struct {
	done chan struct{}
	err  error // read after done
}

// open makes sure that the topic's partitions and the session are known.
func (p *Producer) open(ctx context.Context) error {
	for {
		p.mu.Lock()
		if err := p.refusalLocked(); err != nil {
			p.mu.Unlock()
			return err
		}
		if p.mu.open && !p.mu.stale {
			p.mu.Unlock()
			return nil
		}
		o := p.mu.opening
		if o == nil {
			o = &producerOpening{done: make(chan struct{})}
			p.mu.opening = o
			p.goroutines.Add(1)
			go p.runOpening(o, p.mu.open)
		}
		p.mu.Unlock()
		select {
		case <-o.done:
			if o.err != nil {
				return p.notTaken(o.err)
			}
		case <-ctx.Done():
			return p.notTaken(fmt.Errorf("wait for the topic and the session: %w", context.Cause(ctx)))
		}
	}
}

// runOpening learns the topic and, unless it only comes again because the topic has changed, the session.
func (p *Producer) runOpening(o *producerOpening, again bool) {
	defer p.goroutines.Done()
	var partitions int
	var s producerStart
	err := p.drain(p.openCtx)
	if err == nil {
		partitions, err = p.learnTopic(p.openCtx)
	}
	if err == nil && !again && !p.o.once {
		s, err = p.learnSession(p.openCtx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.opening = nil
	if o.err = err; err == nil {
		p.mu.partitions, p.mu.open, p.mu.stale, p.mu.looked = partitions, true, false, time.Now()
		if !again {
			p.mu.epoch, p.mu.next, p.mu.accepted = s.epoch, s.next, s.accepted
		}
		p.makeLanesLocked()
	}
	close(o.done)
}

// drain waits until no lane has anything, while Send waits for the opening. A first opening finds nothing.
//
// It is needed where the number of partitions has changed: a key may move to another lane, and its records there must not overtake those
// that are still in the old one.
func (p *Producer) drain(ctx context.Context) error {
	for _, done := range p.sealAll() {
		select {
		case <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// learnTopic gives the number of partitions, or 0 where the token does not permit to know it. Then all records share one lane.
func (p *Producer) learnTopic(ctx context.Context) (int, error) {
	t, err := p.c.GetTopic(ctx, p.topic)
	switch {
	case err == nil && t.Partitions > 0:
		return t.Partitions, nil
	case err == nil:
		return 0, fmt.Errorf("send to %s: the server says that it has %d partitions", p.topic, t.Partitions)
	case codeOf(err) == api.CodeForbidden:
		return 0, nil
	}
	return 0, err
}

// lookLocked has the topic looked at beside the records, when it is time. Only where it has changed, they are held up. With SendAt it must
// not change.
func (p *Producer) lookLocked(now time.Time) {
	if now.Sub(p.mu.looked) < lookAgain || p.mu.partitions == 0 || p.mu.positioned {
		return
	}
	p.mu.looked = now
	known := p.mu.partitions
	p.goroutines.Add(1)
	go func() {
		defer p.goroutines.Done()
		if n, err := p.learnTopic(p.openCtx); err == nil && n > 0 && n != known {
			p.setStale()
		}
	}()
}

type producerStart struct {
	epoch    int64
	next     int64           // the first sequence
	accepted map[int32]int64 // highest sequence by partition
}

// learnSession starts a session and asks what earlier ones have left: sequences are remembered across sessions. The order matters. Once
// the session is started, nothing of an older one can be accepted any more, and so the positions are final.
func (p *Producer) learnSession(ctx context.Context) (s producerStart, err error) {
	if s.epoch, err = p.c.StartProducer(ctx, p.o.id); err != nil {
		return s, err
	}
	var highest int64
	if !p.o.generated {
		positions, err := p.c.ProducerPositions(ctx, p.o.id, p.topic)
		if err != nil {
			return s, err
		}
		s.accepted = make(map[int32]int64, len(positions))
		for _, at := range positions {
			s.accepted[int32(at.Partition)] = at.Sequence
			highest = max(highest, at.Sequence)
		}
	}
	s.next, err = firstSequence(s.epoch, highest, rand.Int64N(1<<28))
	return s, err
}

// firstSequence gives where a session's sequences begin: above all that the topic has accepted, and in a range that is the session's own,
// so that no two sessions give one sequence to different records. Otherwise a producer that asks what became of its sequence 7 could take
// the 7 of its successor for it. The epoch is the upper half. Where sequences were made in another way before, that may be too low; then the
// next range is taken, and offset, below 2^28, makes it unlikely that somebody else begins at the same place.
func firstSequence(epoch, highest, offset int64) (int64, error) {
	upper := max(epoch, highest>>32+1)
	if upper > math.MaxInt32 {
		return 0, fmt.Errorf("start producer: its sequences are used up (epoch %d, highest sequence %d)", epoch, highest)
	}
	return upper<<32 + offset, nil
}

// restart begins a new session in place of the one with epoch stale, unless another lane has done so already.
func (p *Producer) restart(ctx context.Context, stale int64) error {
	select {
	case p.restarting <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-p.restarting }()
	p.mu.Lock()
	fatal, renewed := p.mu.fatal, p.mu.epoch > stale
	p.mu.doubtful = p.mu.doubtful || !renewed
	p.mu.Unlock()
	if fatal != nil || renewed {
		return fatal // a successor must not be fenced
	}
	epoch, err := p.c.StartProducer(ctx, p.o.id)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.mu.epoch, p.mu.doubtful = epoch, false
	p.mu.Unlock()
	return nil
}

// resolve asks what became of a batch of which an attempt had an unknown outcome. landed: it is stored. gone: it is not, as of now.
//
// Nothing behind the batch in its lane has been sent. So where it has landed, its partitions have its sequence as their highest, or a
// higher one of a successor. It is stored in all of them or in none.
//
// With Send, a sequence belongs to one batch of one session, and to find it is proof. With SendAt, a sequence is a position, and a successor that has
// sent the same lines will do as well: what a partition has up to its last one of the batch, it has.
//
// Where a partition has only lower ones, the batch has not landed. That is said of the partitions that the keys have as this producer
// knows the topic, and so the topic is looked at again, afterwards: their number only rises.
func (p *Producer) resolve(ctx context.Context, b *producerBatch) (landed, gone bool) {
	if p.o.once || errors.Is(context.Cause(ctx), ErrProducerClosed) {
		return false, false
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	positions, err := p.c.ProducerPositions(ctx, p.o.id, p.topic)
	if err != nil {
		return false, false
	}
	highest := make(map[int32]int64, len(positions))
	for _, at := range positions {
		landed = landed || b.sequences == nil && at.Sequence == b.sequence
		highest[int32(at.Partition)] = at.Sequence
	}
	if landed {
		return true, false
	}
	landed = b.sequences != nil
	for i := range b.live() {
		k := b.original(i)
		at, ok := highest[b.partitions[k]]
		if b.sequences != nil {
			landed = landed && ok && at >= b.sequences[k]
		}
		gone = gone || b.partitions[k] >= 0 && (!ok || at < b.sequence)
	}
	if landed {
		return true, false
	}
	if gone {
		n, err := p.learnTopic(ctx)
		p.mu.Lock()
		gone = err == nil && n == p.mu.partitions
		p.mu.Unlock()
	}
	return false, gone
}
