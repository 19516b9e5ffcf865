package ingest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/internal/failpoint"
	"github.com/forebaymq/forebay/segment"
)

// retryAfter is what a refused client is told: about the time in which a segment is stored and a budget is free again.
const retryAfter = time.Second

// Ingester is the append path of one node.
type Ingester struct {
	o      Options
	limits flushLimits
	m      *metrics
	tracer trace.Tracer

	requests sync.Pool // *request
	planners sync.Pool // *planner
	buffers  bufferPool
	bodies   bodyPool
	scratch  scratchPool

	ctx     context.Context // ends when Close runs out of patience, or at the end
	cancel  context.CancelFunc
	wake    chan struct{} // the flush loop should look again
	slots   chan struct{} // one element an upload slot in use
	flights sync.WaitGroup
	done    chan struct{} // everything has ended

	previous *flight // the last one submitted; belongs to the flight whose turn it is

	mu struct {
		sync.Mutex
		open        *openSegment
		flights     []*flight // without an outcome, in seal order
		uploading   int
		entering    int // requests being encoded
		meter       meter
		ids         *idSource
		budget      budget
		failures    uint64 // cascades so far: a request that was accepted before one may not be stored after it
		lastFailure *api.Error
		draining    bool
		started     <-chan struct{} // of the last flight
		turn        <-chan struct{}
	}
}

var _ Appender = (*Ingester)(nil)

// New starts an Ingester. Close ends it.
func New(o Options) (*Ingester, error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	in := &Ingester{
		o:      o,
		limits: flushLimits{SegmentBytes: o.SegmentBytes, Batches: o.SegmentBatches, CommitBytes: o.CommitBytes, Linger: o.Linger, Uploads: o.UploadConcurrency},
		m:      m,
		tracer: o.TracerProvider.Tracer("github.com/forebaymq/forebay/ingest"),
		wake:   make(chan struct{}, 1),
		slots:  make(chan struct{}, o.UploadConcurrency),
		done:   make(chan struct{}),
	}
	in.requests.New = func() any { return newRequest() }
	in.planners.New = func() any { return &planner{} }
	in.bodies.keeps = o.Sink != nil
	in.ctx, in.cancel = context.WithCancel(context.Background()) // the node's own life, not a request's
	closed := make(chan struct{})
	close(closed)
	in.mu.started, in.mu.turn = closed, closed
	in.mu.open = newOpenSegment()
	in.mu.meter = newMeter(o.Linger, o.Clock.Now())
	in.mu.ids = newIDSource(o.Rand)
	in.mu.budget = newBudget(o.MaxInFlightBytes, o.MaxTenantBytes)
	go in.loop()
	return in, nil
}

// Append stores the request; see Appender. Refusals come at once: METADATA_UNAVAILABLE, OVERLOADED, QUOTA_EXCEEDED, TOO_LARGE.
func (in *Ingester) Append(ctx context.Context, q *Request) (*Result, error) {
	if err := in.o.Committer.Available(); err != nil {
		return nil, in.refuse(refusedMetadata, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, in.refuse(refusedCancelled, in.cancelled(err))
	}
	begin := in.o.Clock.Now()
	r := in.requests.Get().(*request)
	if err := in.enter(ctx, r, q, begin); err != nil {
		in.recycle(r)
		return nil, err
	}
	if err := r.encode(&in.buffers, q); err != nil {
		in.abandonEntry(r)
		return nil, err
	}
	if err := in.buffer(r); err != nil {
		in.recycle(r)
		return nil, in.refuse(refusedCascade, err)
	}
	failpoint.Hit(failpoint.AfterBuffer)

	select {
	case <-r.done:
	case <-ctx.Done():
		if err := in.leave(r, ctx.Err()); err != nil {
			in.m.failure(err)
			return nil, err // r is not reused: a flight may refer to it
		}
		<-r.done
	}
	if r.err != nil {
		err := ownError(r.err)
		in.recycle(r)
		in.m.failure(err)
		return nil, err
	}
	res := r.result()
	in.m.acknowledged(r, in.o.Clock.Since(begin))
	in.recycle(r)
	return res, nil
}

// enter measures the request and takes it into the budgets.
func (in *Ingester) enter(ctx context.Context, r *request, q *Request, now time.Time) error {
	p := in.planners.Get().(*planner)
	err := r.plan(p, q)
	in.planners.Put(p)
	if err == nil && len(r.where) == 0 {
		err = api.Errorf(api.CodeInvalidRequest, "a publish needs at least one record")
	}
	if err != nil {
		return in.refuse(refusedInvalid, err)
	}
	if err := in.checkSize(r); err != nil {
		return in.refuse(refusedTooLarge, err)
	}
	r.span = trace.SpanContextFromContext(ctx)

	in.mu.Lock()
	defer in.mu.Unlock()
	if in.mu.draining {
		e := api.Errorf(api.CodeOverloaded, "the node is draining; another one will take the request")
		e.RetryAfter = retryAfter
		return in.refuse(refusedDraining, e)
	}
	if why, e := in.mu.budget.take(r.tenant, r.cost); e != nil {
		return in.refuse(why, e)
	}
	in.m.inFlight.Set(float64(in.mu.budget.used))
	in.mu.meter.arrive(now)
	in.mu.entering++
	r.stage = entering
	r.epoch = in.mu.failures
	return nil
}

// checkSize refuses what could never be stored, however empty the node is.
func (in *Ingester) checkSize(r *request) error {
	switch {
	case r.cost > in.o.MaxTenantBytes:
		return api.Errorf(api.CodeTooLarge, "the request takes %d bytes in memory, the node gives a tenant %d", r.cost, in.o.MaxTenantBytes)
	case r.bytes > segment.MaxPayloadBytes:
		return api.Errorf(api.CodeTooLarge, "the request has %d bytes, a segment takes %d", r.bytes, segment.MaxPayloadBytes)
	case r.commit > in.o.CommitBytes || len(r.slots) > in.o.SegmentBatches:
		return api.Errorf(api.CodeTooLarge, "the request names too many partitions or event IDs for one atomic commit (%d partitions, %d records): split it",
			len(r.slots), len(r.where))
	}
	return nil
}

// buffer puts an encoded request into the open segment, sealing the one before if it has no room.
func (in *Ingester) buffer(r *request) error {
	now := in.o.Clock.Now()
	in.mu.Lock()
	in.mu.entering--
	if r.epoch != in.mu.failures { // something accepted before it was lost meanwhile: see doom
		in.releaseLocked(r)
		err := in.mu.lastFailure
		in.mu.Unlock()
		in.buffers.put(r.buf)
		r.buf = nil
		in.kick()
		return ownError(err)
	}
	if !in.mu.open.fits(r, in.limits) {
		in.sealLocked(sealSize)
	}
	r.stage = buffered
	in.mu.open.add(r, now, in.o.BatchBytes)
	s, v := in.decideLocked(now)
	if v.Reason == sealSize || v.Reason == sealBatches {
		in.sealLocked(v.Reason)
	}
	in.mu.Unlock()
	// The loop rests until the linger of the first record at the longest, so most requests need not wake it.
	if v.Reason != keepOpen || s.Waiting == 1 || v.Wait < in.limits.Linger-s.Age {
		in.kick()
	}
	return nil
}

// abandonEntry takes back a request whose encoding failed.
func (in *Ingester) abandonEntry(r *request) {
	in.mu.Lock()
	in.mu.entering--
	in.releaseLocked(r)
	in.mu.Unlock()
	in.buffers.put(r.buf)
	r.buf = nil
	in.recycle(r)
	in.kick()
}

// leave is for a caller whose ctx has ended. It returns nil when the outcome is known after all and waits in r.done.
func (in *Ingester) leave(r *request, cause error) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch r.stage {
	case answered:
		return nil
	case buffered:
		r.stage = withdrawn
		in.mu.open.withdraw(r)
		in.releaseLocked(r)
		return in.cancelled(cause)
	}
	if r.flight.doomed != nil && r.flight.state < stateSubmitted {
		return ownError(r.flight.doomed)
	}
	e := api.Errorf(api.CodeOutcomeUnknown, "the request ended before its outcome was known; a producer with a sequence may send it again")
	e.Cause = cause
	return e
}

// cancelled is the answer to a caller that left before its records were on their way: nothing is or will be stored.
func (in *Ingester) cancelled(cause error) error {
	e := api.Errorf(api.CodeStorageUnavailable, "the request ended before it was stored; nothing was stored")
	e.RetryAfter = retryAfter
	e.Cause = cause
	return e
}

// releaseLocked gives the request's share of the budgets back.
func (in *Ingester) releaseLocked(r *request) {
	in.mu.budget.give(r.tenant, r.cost)
	in.mu.meter.leave(1)
	in.m.inFlight.Set(float64(in.mu.budget.used))
}

func (in *Ingester) recycle(r *request) {
	r.reset()
	in.requests.Put(r)
}

// decideLocked asks the flush policy about the open segment.
func (in *Ingester) decideLocked(now time.Time) (flushState, verdict) {
	o := in.mu.open
	s := flushState{
		Waiting:     o.waiting,
		Bytes:       o.bytes,
		Batches:     len(o.batches),
		CommitBytes: o.commit,
		Age:         now.Sub(o.first),
		Entering:    in.mu.entering,
		Uploading:   in.mu.uploading,
		InFlight:    len(in.mu.flights),
		Peak:        in.mu.meter.peak(now),
		Doubt:       in.mu.meter.doubt(now),
		MeanGap:     in.mu.meter.meanGap,
		SinceLast:   now.Sub(in.mu.meter.last),
		Draining:    in.mu.draining,
	}
	v := decide(in.limits, s)
	if v.Probe && o.probe == 0 {
		o.probe = len(o.requests)
	}
	return s, v
}

// sealLocked turns the open segment, which must not be empty, into a flight and starts it.
func (in *Ingester) sealLocked(why reason) *flight {
	now := in.o.Clock.Now()
	f := &flight{
		reason: why, sealed: now, appendTime: now.UnixMilli(), seg: in.mu.open, uploading: true,
		prevStarted: in.mu.started, prevTurn: in.mu.turn,
		started: make(chan struct{}), turn: make(chan struct{}),
	}
	f.ctx, f.cancel = context.WithCancelCause(in.ctx)
	id, err := in.mu.ids.next(now)
	f.id, f.key = id, segment.Name{ID: id}.Key()
	if err != nil { // no ID, no object
		f.doomed = api.Errorf(api.CodeInternal, "no segment ID could be made: %w", err)
		f.cancel(err)
	}
	for _, r := range f.seg.requests {
		if r.stage == buffered {
			r.stage, r.flight = sealed, f
		}
	}
	if f.seg.probe > 0 && why != sealDrain && why != sealCascade {
		in.mu.meter.learn(now, len(f.seg.requests) > f.seg.probe)
	}
	in.m.seal(f)
	in.mu.open = newOpenSegment()
	in.mu.flights = append(in.mu.flights, f)
	in.mu.uploading++
	in.mu.started, in.mu.turn = f.started, f.turn
	in.flights.Add(1)
	go in.run(f)
	return f
}

// kick makes the flush loop look again.
func (in *Ingester) kick() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// loop seals segments when their time has come, and ends everything once Close has been called and nothing is left.
func (in *Ingester) loop() {
	defer close(in.done)
	defer in.cancel()
	defer in.flights.Wait()
	timer := in.o.Clock.NewTimer(in.o.Linger)
	defer timer.Stop()
	for {
		wait, end := in.flush()
		if end {
			return
		}
		timer.Reset(wait)
		select {
		case <-in.wake:
			// Callers that are about to publish get their chance to join before the next look.
			runtime.Gosched()
		case <-timer.Chan():
		}
	}
}

// flush seals the open segment if decide says so, and tells how long the loop may rest.
func (in *Ingester) flush() (wait time.Duration, end bool) {
	now := in.o.Clock.Now()
	in.mu.Lock()
	defer in.mu.Unlock()
	_, v := in.decideLocked(now)
	if v.Reason != keepOpen {
		in.sealLocked(v.Reason)
		v.Wait = forever
	}
	return v.Wait, in.mu.draining && in.mu.entering == 0 && in.mu.open.waiting == 0
}

// Close drains: it refuses new requests (OVERLOADED), flushes, commits and answers what was accepted, and returns when everything has ended.
// If ctx ends first, uploads are cut short, requests not submitted are refused, those submitted get OUTCOME_UNKNOWN, and the error is
// ctx's. Close may be called more than once.
func (in *Ingester) Close(ctx context.Context) error {
	in.mu.Lock()
	in.mu.draining = true
	in.mu.Unlock()
	in.kick()
	select {
	case <-in.done:
		return nil
	case <-ctx.Done():
	}
	in.cancel()
	<-in.done
	return fmt.Errorf("drain ingest: %w", ctx.Err())
}

// ownError gives every caller its own copy: an *api.Error may be added to by whoever renders it, and failed requests share one.
func ownError(err error) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	own := *e
	own.Extra = nil
	for k, v := range e.Extra {
		own.With(k, v)
	}
	return &own
}
