package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/forebaymq/forebay/api"
)

// producerLane sends the records of some partitions, one request at a time. Its goroutine lives from its first record to the producer's
// end.
type producerLane struct {
	p    *Producer
	kick chan struct{} // of capacity 1: look again

	// Guarded by Producer.mu.
	running bool
	open    *producerBatch   // takes records; nil = none
	sealed  []*producerBatch // full, or flushed
	current *producerBatch   // is being delivered
	hint    int              // how many bytes the last batch had: the next one will be like it
}

func (l *producerLane) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

func (l *producerLane) run() {
	defer l.p.goroutines.Done()
	for {
		b, wait, end := l.next()
		switch {
		case b != nil:
			l.p.deliver(b)
			l.p.mu.Lock()
			l.current = nil
			l.p.mu.Unlock()
		case end:
			return
		case wait > 0:
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-l.kick:
			}
			timer.Stop()
		default:
			<-l.kick
		}
	}
}

// next gives the batch that is due, or how long the open one has to linger (0 = there is none), or the end.
func (l *producerLane) next() (b *producerBatch, wait time.Duration, end bool) {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(l.sealed) > 0:
		b = l.sealed[0]
		l.sealed[0] = nil
		l.sealed = l.sealed[1:]
	case l.open != nil:
		if wait = p.o.linger - time.Since(l.open.created); wait > 0 && !p.mu.closed {
			return nil, wait, false
		}
		b = l.open
		p.sealLocked(l)
		l.sealed = nil
	default:
		return nil, 0, p.mu.closed
	}
	l.current, l.hint = b, len(b.encoded)
	return b, 0, false
}

// deliver brings a batch to its outcome.
func (p *Producer) deliver(b *producerBatch) {
	pauses := &backoff.ExponentialBackOff{
		InitialInterval: p.c.policy.Initial, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: p.c.policy.Max,
	}
	pauses.Reset()
	for {
		if err := p.hold(b); err != nil {
			p.giveUp(b, err)
			return
		}
		if time.Until(b.deadline) < min(p.o.deadline/10, time.Second) { // too late for an attempt that has a chance
			p.giveUp(b, ErrDeliveryDeadline)
			return
		}
		result, epoch, err := p.attempt(b)
		next := p.judge(b, epoch, result, err)
		switch next {
		case deliverDone:
			return
		case deliverNow:
			continue
		case deliverLater:
		}
		if !p.pause(b, err, pauses.NextBackOff()) {
			p.giveUp(b, p.endOf())
			return
		}
	}
}

// hold waits while the server wants to be left alone, up to the batch's deadline. It gives an error where the batch has to be given up because
// the producer is at its end.
func (p *Producer) hold(b *producerBatch) error {
	for {
		p.mu.Lock()
		until, fatal, stopped := p.mu.notBefore, p.mu.fatal, p.mu.stopped
		p.mu.Unlock()
		switch {
		case fatal != nil:
			return fatal
		case stopped != nil && b.attempts == 0:
			b.last = stopped
			return ErrProducerStopped
		case p.ctx.Err() != nil:
			return context.Cause(p.ctx)
		}
		wait := min(time.Until(until), time.Until(b.deadline))
		if wait <= 0 {
			return nil
		}
		if !p.sleep(wait) {
			return p.endOf()
		}
	}
}

// pause waits after a failed attempt, for all lanes where the server has named a time. It returns false when the producer ends meanwhile.
func (p *Producer) pause(b *producerBatch, err error, wait time.Duration) bool {
	var e *Error
	if errors.As(err, &e) {
		if e.RetryAfter > 0 {
			// Spread, so that the lanes do not come back in one moment.
			until := time.Now().Add(min(e.RetryAfter, p.c.policy.MaxRetryAfter))
			p.mu.Lock()
			if until.After(p.mu.notBefore) {
				p.mu.notBefore = until
			}
			p.mu.Unlock()
			wait = min(e.RetryAfter, p.c.policy.MaxRetryAfter) + rand.N(p.c.policy.Initial)
		}
		if p.c.policy.Notify != nil {
			p.c.policy.Notify(e, wait)
		}
	}
	return p.sleep(min(wait, max(time.Until(b.deadline), 0)))
}

// sleep returns false when the producer ends meanwhile.
func (p *Producer) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.ended:
	case <-p.ctx.Done():
	}
	return false
}

// endOf gives the reason for which the producer has ended.
func (p *Producer) endOf() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.fatal != nil {
		return p.mu.fatal
	}
	return context.Cause(p.ctx)
}

// attempt sends a batch once. The epoch is the one that it was sent with.
func (p *Producer) attempt(b *producerBatch) (result *PublishResult, epoch int64, err error) {
	var place *ProducerSequence
	if !p.o.once {
		p.mu.Lock()
		if !b.numbered {
			p.numberLocked(b)
		}
		epoch = p.mu.epoch
		p.mu.Unlock()
		place = &ProducerSequence{ID: p.o.id, Epoch: epoch, Sequence: b.sequence}
	}
	op := "publish to " + p.topic
	body, encoding, err := p.c.compress(b.body(place))
	if err != nil {
		return nil, epoch, &Error{Op: op, Cause: errors.Join(errNotSent, err)}
	}
	r := &request{
		op: op, method: http.MethodPost, path: topicPath(p.topic) + "/records", body: body, contentType: contentProtobuf,
		contentEncoding: encoding, accept: contentProtobuf, attempts: 1,
	}
	ctx, cancel := context.WithDeadline(p.ctx, b.deadline)
	defer cancel()
	b.attempts++
	err = p.c.call(ctx, r, func(_ int, answer []byte) (err error) {
		if result, err = decodePublish(answer, b.live()); err == nil && len(result.Records) != b.live() {
			err = fmt.Errorf("%d records were sent, %d positions came back", b.live(), len(result.Records))
		}
		return err
	})
	return result, epoch, err
}

// numberLocked gives a batch the sequence of its next attempts. Sequences rise in the order of a lane's batches, because a lane has one
// batch at a time.
func (p *Producer) numberLocked(b *producerBatch) {
	b.numbered = true
	if b.sequences != nil {
		b.sequence = b.sequences[b.original(b.live()-1)]
		return
	}
	b.sequence = p.mu.next
	p.mu.next++
}

// maxRenumbered bounds how often a batch gets another sequence because of a conflict: one that stays has another reason.
const maxRenumbered = 16

type deliverStep uint8

const (
	deliverDone  deliverStep = iota // the batch has its outcome
	deliverNow                      // another attempt at once
	deliverLater                    // another attempt after a pause
)

// judge decides what follows from an attempt. A refusal speaks for its own attempt only: where an earlier one may have arrived, it does
// not make the batch's outcome definite.
func (p *Producer) judge(b *producerBatch, epoch int64, result *PublishResult, err error) deliverStep {
	outcome, _ := Classify(err)
	if errors.Is(err, errNotSent) {
		outcome = Retriable // there was no token to be had
	}
	switch outcome {
	case Succeeded:
		p.succeed(b, result.Records, result.Duplicate)
		return deliverDone
	case Retriable:
		b.last = err
		return deliverLater
	case Indefinite:
		b.last, b.unknown = err, true
		if p.o.once {
			p.fail(b, Indefinite, nil)
			return deliverDone
		}
		return deliverLater
	}
	b.last = err
	switch code := codeOf(err); {
	case p.o.once:
	case code == api.CodeProducerFenced:
		return p.judgeFenced(b, epoch)
	case code == api.CodeInvalidRequest && !hasFields(err) && !b.renewed:
		// A running session with a higher epoch would have said PRODUCER_FENCED. So ours is the newest that was started, and it was
		// forgotten: after 7 days without use, or because this is another region's fabric.
		b.renewed = true
		return p.renew(b, epoch)
	case code == api.CodeConflict && !b.unknown && b.sequences == nil && b.renumbered < maxRenumbered:
		// A higher sequence came first: the number of partitions was raised, so that a partition's keys are in two lanes. It is certain
		// that this sequence is not stored and never will be, so the records may have another.
		p.setStale()
		b.numbered = false
		b.renumbered++
		return deliverNow
	}
	if code := codeOf(err); code == api.CodeUnknownTopic || code == api.CodeUnknownPartition {
		p.setStale() // deleted and created again, perhaps with fewer partitions
	}
	if b.unknown {
		p.giveUp(b, nil)
		return deliverDone
	}
	if i, ok := refusedRecord(err); ok && i < b.live() && b.live() > 1 {
		return p.withoutRecord(b, i, err)
	}
	p.fail(b, Definite, nil)
	return deliverDone
}

// judgeFenced tells a session of somebody else from one of our own: a lane may have renewed it meanwhile, and a random ID is nobody
// else's, so that it can only have been fenced by a start of our own whose answer was lost.
func (p *Producer) judgeFenced(b *producerBatch, epoch int64) deliverStep {
	select { // wait for a lane that is renewing the session right now
	case p.restarting <- struct{}{}:
		<-p.restarting
	case <-p.ctx.Done():
	}
	p.mu.Lock()
	now, doubtful := p.mu.epoch, p.mu.doubtful
	p.mu.Unlock()
	if now > epoch {
		return deliverNow
	}
	if p.o.generated || doubtful {
		return p.renew(b, epoch)
	}
	p.end(ErrFenced)
	p.giveUp(b, ErrFenced)
	return deliverDone
}

func (p *Producer) renew(b *producerBatch, epoch int64) deliverStep {
	err := p.restart(p.ctx, epoch)
	if err == nil {
		return deliverNow
	}
	b.last = err
	if outcome, _ := Classify(err); outcome == Definite {
		p.giveUp(b, nil)
		return deliverDone
	}
	return deliverLater
}

// withoutRecord takes the record that was refused out of the request, so that it does not spoil the others. All attempts so far were
// refused, so the others are not stored and can be sent under another sequence.
func (p *Producer) withoutRecord(b *producerBatch, i int, err error) deliverStep {
	refused := &DeliveryError{Topic: b.topic, Outcome: Definite, Attempts: b.attempts, Cause: err}
	if !p.stops(b) {
		b.drop(i, 1, refused)
		b.numbered = false
		return deliverNow
	}
	if i == 0 {
		b.drop(0, 1, refused)
		p.stopAt(refused)
		p.fail(b, Definite, ErrProducerStopped)
		return deliverDone
	}
	p.stopAt(refused)
	b.drop(i, 1, refused)
	if n := b.live() - i; n > 0 {
		b.drop(i, n, &DeliveryError{Topic: b.topic, Outcome: Definite, Reason: ErrProducerStopped, Cause: refused})
	}
	b.numbered = false
	return deliverNow
}

// refusedRecord gives the record of the request that a refusal points to.
func refusedRecord(err error) (int, bool) {
	var e *Error
	if !errors.As(err, &e) || len(e.Fields) == 0 {
		return 0, false
	}
	rest, ok := strings.CutPrefix(e.Fields[0].Pointer, "/records/")
	if !ok {
		return 0, false
	}
	number, _, _ := strings.Cut(rest, "/")
	i, err := strconv.Atoi(number)
	return i, err == nil && i >= 0
}

func hasFields(err error) bool {
	var e *Error
	return errors.As(err, &e) && len(e.Fields) > 0
}

// giveUp ends a batch without a success. Where its outcome is unknown, the server is asked.
func (p *Producer) giveUp(b *producerBatch, reason error) {
	if !b.unknown {
		outcome := Definite
		if errors.Is(reason, ErrDeliveryDeadline) || errors.Is(reason, ErrProducerClosed) {
			if last, _ := Classify(b.last); b.last == nil || last == Retriable {
				outcome = Retriable
			}
		}
		p.fail(b, outcome, reason)
		return
	}
	landed, gone := p.resolve(p.ctx, b)
	switch {
	case landed:
		positions := make([]Position, b.live())
		for i := range positions {
			positions[i] = Position{Partition: b.partitions[b.original(i)], Offset: -1}
		}
		p.succeed(b, positions, true)
	case gone && errors.Is(reason, ErrFenced):
		p.fail(b, Definite, reason) // nothing of a fenced session arrives any more
	default:
		p.fail(b, Indefinite, reason)
	}
}

// succeed ends a batch with the positions of its records.
func (p *Producer) succeed(b *producerBatch, positions []Position, duplicate bool) {
	if b.alive != nil {
		all := make([]Position, b.len())
		for i, k := range b.alive {
			all[k] = positions[i]
		}
		positions = all
	}
	b.positions, b.duplicate = positions, duplicate
	p.finish(b)
}

// stops says whether the failure of a batch ends the producer.
func (p *Producer) stops(b *producerBatch) bool { return p.o.stop || b.sequences != nil }

// fail ends a batch with an error.
func (p *Producer) fail(b *producerBatch, outcome Outcome, reason error) {
	b.err = &DeliveryError{Topic: b.topic, Outcome: outcome, Attempts: b.attempts, Reason: reason, Cause: b.last}
	if p.stops(b) && !errors.Is(b.err, ErrProducerStopped) {
		p.stopAt(b.err)
	}
	p.finish(b)
}
