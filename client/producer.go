package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/forebaymq/forebay/api"
)

// Producer publishes to one topic for as long as a program runs. It gathers records of all callers into requests, keeps several requests
// under way, repeats what failed, and says of each record what became of it. It is safe for concurrent use.
//
// # What holds
//
//   - A record whose Delivery succeeds is stored durably, once. One that fails as Definite or Retriable is not stored. One that fails as
//     Indefinite may be stored, once.
//   - Records of one key, and records of one partition, are stored in the order in which Send took them, through all retries. Records
//     without a key and a partition are spread over the partitions, a batch at a time; where the topic has one partition, they have an order too.
//   - One thing can double a record: the topic's number of partitions is raised while a request is unanswered. Repeated after that, a key's
//     record goes to another partition, where the server cannot recognise it.
//   - Memory is bounded: Send waits while records of 64 MiB (WithProducerBuffer) have no outcome.
//   - A server that is at its limit slows the producer down. Nothing is dropped for it before its deadline.
//
// # Why the order holds with several requests in flight
//
// The server accepts, for a producer and partition, any sequence above the highest that it has accepted, and refuses for ever a lower one
// that it has not: it does not wait for the sequence between. Two requests for one partition under way at once could therefore arrive in
// either order, over two connections or after a retry:
//
//	send 1 (lost on the way)   send 2 -> accepted   send 1 again -> refused: 2 is above it
//
// and 1 could then only be stored behind 2. So no two requests for one partition are ever under way. Partitions are dealt out to lanes
// (partition modulo lanes, 8 lanes: WithProducerInFlight); a lane sends its next request when the one before has its outcome, and what arrives
// meanwhile becomes one larger request. Lanes share nothing but the session: a request that hangs in one holds up the others not at all.
//
// A request of unknown outcome is repeated with its sequence, and the server recognises it, until its outcome is known or its deadline
// has passed. Then its lane goes on:
//
//	send 7 -> no answer, until the deadline   7 fails as Indefinite   send 8 -> accepted   the first 7 arrives late -> refused
//
// Whatever 7 covered, either it was stored before 8, or, once 8 is in the partition, it never will be. So giving up on 7 cannot put it
// behind 8. Before it gives up, the producer asks the server what it has (ProducerPositions): 7 in the answer is a success.
//
// It does not start a new session to force the answer, although that would keep a late 7 out at once: a producer that was cut off for
// minutes may have a successor with the same ID, and would fence it. A session is only renewed when the server says that a newer one does not
// exist: it has forgotten ours.
//
// # Sessions
//
// The first Send starts a session and learns the topic's partitions; their number is looked at every 5 minutes, and when the server says
// something that it explains. With an ID of its own (WithProducerID) a newer Producer fences this
// one, in this process or another: it ends, and everything pending fails with ErrFenced. One ID belongs to one Producer at a time.
//
// Where the token does not permit to describe the topic, the partitions are unknown and all records share one lane.
type Producer struct {
	c      *Client
	topic  string
	o      producerOptions
	budget *producerBudget

	ctx         context.Context // of all requests; ends when Close runs out of patience
	cancel      context.CancelCauseFunc
	openCtx     context.Context // of the opening; ends with Close
	stopOpening context.CancelCauseFunc
	ended       chan struct{} // closed when the producer was fenced
	goroutines  sync.WaitGroup
	restarting  chan struct{} // held by the lane that renews the session

	mu struct {
		sync.Mutex
		open       bool // the topic and the session are known
		stale      bool // the topic is to be looked at again
		opening    *producerOpening
		partitions int       // of the topic; 0 = unknown
		looked     time.Time // when the topic was looked at, or is being looked at, last
		lanes      []*producerLane
		width      int   // of lanes, how many are in use
		sticky     int32 // partition of records without a key
		epoch      int64
		doubtful   bool            // a newer session of our own may exist: the answer to its start was lost
		next       int64           // the next sequence
		accepted   map[int32]int64 // what the partitions had of the ID when the session began
		plain      bool            // Send is used
		positioned bool            // SendAt is used
		position   int64           // the last one given to SendAt
		notBefore  time.Time       // the server asked for silence until then
		closed     bool
		stopped    error // refuses new records: of the failure that stopped the producer
		fatal      error // ErrFenced
		failures   int   // since Flush or Close last told of them
		failure    error // the first of those
	}
}

// NewProducer makes a Producer for one topic. It does not connect.
func NewProducer(c *Client, topic string, opts ...ProducerOption) (*Producer, error) {
	o := producerOptions{
		id: "go-" + rand.Text(), generated: true, linger: defaultLinger, batchRecords: defaultBatchRecords, batchBytes: defaultBatchBytes,
		lanes: defaultRequestsInFlight, buffer: defaultProducerBuffer, deadline: defaultDeliveryDeadline,
	}
	for _, opt := range opts {
		opt(&o)
	}
	if err := api.CheckName("topic", topic); err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("producer for %s: %w", topic, err)
	}
	p := &Producer{c: c, topic: topic, o: o, budget: &producerBudget{limit: o.buffer}, ended: make(chan struct{}), restarting: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.openCtx, p.stopOpening = context.WithCancelCause(p.ctx)
	p.mu.sticky = int32(mathrand.IntN(api.MaxPartitions))
	return p, nil
}

// ID gives the producer's ID.
func (p *Producer) ID() string { return p.o.id }

// Send hands over a record and returns before it is stored; the Delivery tells of its outcome. It waits while the buffer is full, and the
// first time for the topic and the session, no longer than the context. The record is copied, unless there is a callback. An error means
// that the record was not taken and is not stored: it is over a limit (TOO_LARGE), the context ended, or the producer has.
func (p *Producer) Send(ctx context.Context, r Record) (*Delivery, error) {
	return p.send(ctx, &r, nil)
}

// SendAt is Send for a source that can be read again: position is the record's place in it, such as a line number, and rises from call to
// call. With WithProducerID, a program that was interrupted sends its source again from anywhere at or before the interruption: what the topic has
// already is skipped, and its Delivery says Duplicate.
//
// It stops the producer at the first failure, as WithProducerStopOnFailure does: a record that is missing below one that is stored would be
// skipped the next time. Records without a key and a partition go to the partition position modulo partitions. Send and SendAt do
// not mix, not in different runs of one ID either: its sequences would be taken for positions. All runs must send the same records at the
// same positions. The number of partitions must not change between runs.
func (p *Producer) SendAt(ctx context.Context, r Record, position int64) (*Delivery, error) {
	return p.send(ctx, &r, &position)
}

// Publish sends a record and waits until it is stored. Where the context ends first the outcome is unknown to the caller: the
// producer goes on with the record.
func (p *Producer) Publish(ctx context.Context, r Record) (Position, error) {
	d, err := p.Send(ctx, r)
	if err != nil {
		return Position{}, err
	}
	return d.Wait(ctx)
}

// Positions gives the highest sequence that each partition of the topic has accepted of this producer's ID, in all of its sessions. With
// SendAt those are positions.
func (p *Producer) Positions(ctx context.Context) ([]ProducerPosition, error) {
	return p.c.ProducerPositions(ctx, p.o.id, p.topic)
}

// Buffered gives how many bytes the records take, about, that have no outcome yet.
func (p *Producer) Buffered() int64 { return p.budget.inUse() }

// Flush sends what Send has taken without waiting for more, and waits until all of it has an outcome. It returns the first failure since
// Flush or Close last told of one, with the number of records that failed since; or the end of the context.
func (p *Producer) Flush(ctx context.Context) error {
	for _, done := range p.sealAll() {
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("flush %s: %w", p.topic, context.Cause(ctx))
		}
	}
	return p.told()
}

// Close delivers what Send has taken and ends the producer. Where the context ends first, what has no outcome by then fails at once. It
// returns what Flush returns of failures, and may be called again.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.mu.closed = true
	for _, l := range p.mu.lanes {
		p.sealLocked(l)
		l.wake()
	}
	p.mu.Unlock()
	p.budget.end(ErrProducerClosed)
	p.stopOpening(ErrProducerClosed)
	done := make(chan struct{})
	go func() {
		p.goroutines.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	p.cancel(ErrProducerClosed)
	<-done
	return p.told()
}

// told gives the failures that nobody was told of.
func (p *Producer) told() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.mu.failures, p.mu.failure
	p.mu.failures, p.mu.failure = 0, nil
	if n > 1 {
		return fmt.Errorf("%d records failed, the first: %w", n, err)
	}
	return err
}

func (p *Producer) send(ctx context.Context, r *Record, position *int64) (*Delivery, error) {
	if err := checkRecordLimits(p.topic, r); err != nil {
		return nil, err
	}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	size := int64(sizeRecord(r) + recordOverhead)
	if err := p.budget.acquire(ctx, size); err != nil {
		return nil, p.notTaken(err)
	}
	for {
		d, taken, err := p.accept(r, position, size)
		if errors.Is(err, errTopicStale) { // found out while this record waited for room
			if err = p.open(ctx); err == nil {
				continue
			}
		}
		if !taken {
			p.budget.release(size)
		}
		return d, err
	}
}

// errTopicStale: the topic is looked at again, and no record may be taken meanwhile: it could overtake those of its key in another lane.
var errTopicStale = errors.New("the topic is looked at again")

// notTaken is the error of a Send whose record was not taken.
func (p *Producer) notTaken(err error) error {
	var d *DeliveryError
	if errors.As(err, &d) {
		return err
	}
	switch {
	case errors.Is(err, ErrProducerClosed), errors.Is(err, ErrProducerStopped), errors.Is(err, ErrFenced):
		return &DeliveryError{Topic: p.topic, Outcome: Definite, Reason: err}
	}
	outcome, _ := Classify(err)
	if outcome != Definite {
		outcome = Retriable
	}
	return &DeliveryError{Topic: p.topic, Outcome: outcome, Cause: err}
}

// refusalLocked says why no record is taken any more, or nil.
func (p *Producer) refusalLocked() error {
	switch {
	case p.mu.fatal != nil:
		return p.notTaken(p.mu.fatal)
	case p.mu.stopped != nil:
		return &DeliveryError{Topic: p.topic, Outcome: Definite, Reason: ErrProducerStopped, Cause: p.mu.stopped}
	case p.mu.closed:
		return p.notTaken(ErrProducerClosed)
	}
	return nil
}

// accept puts a record into its lane's open batch. taken: its bytes are the batch's.
func (p *Producer) accept(r *Record, position *int64, size int64) (d *Delivery, taken bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.refusalLocked(); err != nil {
		return nil, false, err
	}
	if p.mu.stale {
		return nil, false, errTopicStale
	}
	now := time.Now()
	p.lookLocked(now)
	if err := p.placeLocked(position); err != nil {
		return nil, false, err
	}
	partition, placed, err := p.routeLocked(r, position)
	if err != nil {
		return nil, false, err
	}
	if position != nil {
		if at, ok := p.mu.accepted[partition]; ok && *position <= at {
			return storedBefore(p.topic, partition), false, nil
		}
	}
	l := p.mu.lanes[max(partition, 0)%int32(p.mu.width)]
	encoded := sizeRecord(placed)
	// A batch has one deadline, that of its first record. Where a lane is held up, the later ones must not lose more than a tenth of their time.
	if l.open != nil && (len(l.open.encoded)+encoded+8 > p.o.batchBytes || now.Sub(l.open.created) > max(p.o.deadline/10, p.o.linger)) {
		p.sealLocked(l)
	}
	if l.open == nil {
		l.open = p.newBatch(now, l.hint)
		l.wake() // to linger
	}
	b := l.open
	d = b.add(placed, encoded, partition)
	b.bytes += size
	if position != nil {
		b.sequences = append(b.sequences, *position)
	}
	if p.o.callback != nil {
		b.records = append(b.records, *r)
	}
	if b.len() >= p.o.batchRecords || len(b.encoded) >= p.o.batchBytes {
		p.sealLocked(l)
	}
	if !l.running {
		l.running = true
		p.goroutines.Add(1)
		go l.run()
	}
	return d, true, nil
}

// placeLocked checks the position of a record, or that it has none.
func (p *Producer) placeLocked(position *int64) error {
	refuse := func(format string, args ...any) error {
		return p.notTaken(&Error{Op: "send to " + p.topic, Code: api.CodeInvalidRequest, Detail: fmt.Sprintf(format, args...), Cause: errNotSent})
	}
	if position == nil {
		if p.mu.positioned {
			return refuse("Send and SendAt do not mix")
		}
		p.mu.plain = true
		return nil
	}
	switch {
	case p.mu.plain:
		return refuse("Send and SendAt do not mix")
	case p.o.once:
		return refuse("SendAt needs a producer session")
	case p.mu.partitions == 0:
		return refuse("SendAt needs to know the topic's partitions, and the token does not permit to describe it")
	case *position < 0, p.mu.positioned && *position <= p.mu.position:
		return refuse("position %d: want more than the last one's (%d)", *position, p.mu.position)
	}
	p.mu.positioned, p.mu.position = true, *position
	return nil
}

// routeLocked gives the partition of a record, -1 where only the server knows, and the record as it is to be encoded.
func (p *Producer) routeLocked(r *Record, position *int64) (int32, *Record, error) {
	n := p.mu.partitions
	switch {
	case r.Pinned && (r.Partition < 0 || r.Partition >= api.MaxPartitions):
		return 0, nil, p.notTaken(&Error{Op: "send to " + p.topic, Code: api.CodeUnknownPartition, Detail: fmt.Sprintf("there is no partition %d", r.Partition), Cause: errNotSent})
	case r.Pinned && n == 0:
		return -1, r, nil
	case r.Pinned:
		return r.Partition, r, nil
	case n == 0:
		return -1, r, nil
	case r.Key != nil:
		return int32(api.PartitionForKey(r.Key, n)), r, nil
	}
	placed := *r
	placed.Pinned, placed.Partition = true, p.mu.sticky%int32(n)
	if position != nil {
		placed.Partition = int32(*position % int64(n))
	}
	return placed.Partition, &placed, nil
}

// sealLocked ends a lane's open batch. Records without a key go to the next partition then.
func (p *Producer) sealLocked(l *producerLane) {
	if l.open == nil {
		return
	}
	l.sealed = append(l.sealed, l.open)
	l.open = nil
	l.wake()
	if n := int32(p.mu.partitions); n > 1 && p.mu.lanes[p.mu.sticky%n%int32(p.mu.width)] == l {
		p.mu.sticky = (p.mu.sticky + 1) % n
	}
}

// makeLanesLocked makes the lanes that there are not yet. Nothing is under way then.
func (p *Producer) makeLanesLocked() {
	p.mu.width = min(p.o.lanes, max(p.mu.partitions, 1))
	for len(p.mu.lanes) < p.mu.width {
		p.mu.lanes = append(p.mu.lanes, &producerLane{p: p, kick: make(chan struct{}, 1)})
	}
}

// sealAll seals every open batch and gives what to wait for until all that was taken has an outcome.
func (p *Producer) sealAll() []<-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	var dones []<-chan struct{}
	for _, l := range p.mu.lanes {
		p.sealLocked(l)
		if l.current != nil {
			dones = append(dones, l.current.done)
		}
		if n := len(l.sealed); n > 0 {
			dones = append(dones, l.sealed[n-1].done)
		}
	}
	return dones
}

// setStale has the topic looked at again before the next record is taken.
func (p *Producer) setStale() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.stale = true
}

// end refuses all that comes, because a newer session exists. Each lane gives up on what it has, in its order.
func (p *Producer) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.fatal == nil {
		p.mu.fatal = err
		close(p.ended)
		p.hurryLocked(err)
	}
}

// stopAt refuses all that comes and all that waits, because a record failed. What is under way goes on.
func (p *Producer) stopAt(failure error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.stopped == nil {
		p.mu.stopped = failure
		p.hurryLocked(ErrProducerStopped)
	}
}

// hurryLocked wakes whoever waits for room or lingers.
func (p *Producer) hurryLocked(err error) {
	p.budget.end(err)
	for _, l := range p.mu.lanes {
		p.sealLocked(l)
	}
}

// finish makes the outcome of a batch known.
func (p *Producer) finish(b *producerBatch) {
	if p.o.callback != nil {
		for i := range b.records {
			at, err := b.outcome(int32(i))
			p.o.callback(b.records[i], at, err)
		}
	}
	failed, first := len(b.errs), b.err
	if first != nil {
		failed += b.live()
	}
	for i := int32(0); failed > 0 && len(b.errs) > 0 && int(i) < b.len(); i++ {
		if err := b.errs[i]; err != nil {
			first = err
			break
		}
	}
	if failed > 0 {
		p.mu.Lock()
		if p.mu.failures == 0 {
			p.mu.failure = first
		}
		p.mu.failures += failed
		p.mu.Unlock()
	}
	p.budget.release(b.bytes)
	b.encoded, b.ends, b.partitions, b.sequences, b.records, b.alive, b.last = nil, nil, nil, nil, nil, nil, nil
	close(b.done)
}
