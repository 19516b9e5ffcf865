package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/internal/failpoint"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// state is where a sealed segment is on its way:
//
//	sealed -> encoding -> uploading -> uploaded -> submitted -> committed
//	   |          |           |           |            |
//	   +----------+-----------+-----------+------------+-----> failed     definitely without effect
//	                                                   +-----> abandoned  outcome unknown: the node or its log stopped first
//
// Everything up to uploaded runs in parallel for several segments, and a failure there takes all later segments with it (see doom).
// Submission is in seal order. From submitted on, only the metadata log knows.
type state uint8

const (
	stateSealed state = iota
	stateEncoding
	stateUploading
	stateUploaded
	stateSubmitted
	stateCommitted
	stateFailed
	stateAbandoned
)

var stateNames = [...]string{"sealed", "encoding", "uploading", "uploaded", "submitted", "committed", "failed", "abandoned"}

func (s state) String() string { return stateNames[s] }

// canFollow says whether a segment may go from s to next.
func (s state) canFollow(next state) bool {
	switch next {
	case stateEncoding, stateUploading, stateUploaded, stateSubmitted:
		return next == s+1
	case stateCommitted, stateAbandoned:
		return s == stateSubmitted
	case stateFailed:
		return s <= stateSubmitted
	}
	return false
}

var errUploadTimeout = errors.New("upload took too long")

// flight is a sealed segment on its way, and belongs to the goroutine that runs it, but for what Ingester.mu guards.
type flight struct {
	id         ulid.ULID
	key        string
	reason     reason
	sealed     time.Time
	appendTime int64 // Unix ms
	seg        *openSegment

	ctx    context.Context // of its upload
	cancel context.CancelCauseFunc
	// Two chains run through the flights in seal order. started closes when this one has its upload slot or needs none; turn
	// closes when this one and all before it are submitted or failed.
	prevStarted, prevTurn <-chan struct{}
	started, turn         chan struct{}
	pending               *metadata.Pending // once submitted

	// Guarded by Ingester.mu.
	state     state
	uploading bool  // counts as a segment not uploaded yet
	doomed    error // why it must fail, decided before it was submitted
}

// run takes f from sealed to its end.
func (in *Ingester) run(f *flight) {
	defer in.flights.Done()
	defer f.cancel(nil)
	ctx, span := in.tracer.Start(f.ctx, "ingest.flush", trace.WithLinks(f.links()...), trace.WithAttributes(
		attribute.String("forebay.segment", f.key), attribute.String("forebay.seal.reason", string(f.reason)),
		attribute.Int("forebay.requests", f.seg.waiting), attribute.Int("forebay.bytes", f.seg.bytes)))
	defer span.End()

	commit, err := in.store(ctx, f)
	if err != nil {
		in.doom(f, err)
	}
	if in.doomedBefore(f, f.prevTurn) {
		in.finish(f, stateFailed) // its callers need not wait for those before it, but the chain does
		span.SetStatus(codes.Error, "segment failed")
		<-f.prevTurn
		close(f.turn)
		return
	}
	pending, err := in.submit(f, commit)
	close(f.turn)
	if err != nil {
		in.finish(f, stateFailed)
		span.SetStatus(codes.Error, err.Error())
		return
	}
	_, wait := in.tracer.Start(ctx, "ingest.commit")
	end := in.await(f, pending, commit)
	wait.End()
	span.SetAttributes(attribute.String("forebay.outcome", end.String()))
	in.finish(f, end)
}

// store builds and uploads f, when it has got one of the upload slots.
func (in *Ingester) store(ctx context.Context, f *flight) (*metadata.Commit, error) {
	commit, body, err := in.encodeAndPut(ctx, f)
	in.mu.Lock()
	if f.uploading {
		f.uploading = false
		in.mu.uploading--
	}
	in.mu.Unlock()
	in.kick()
	if err != nil {
		return nil, err
	}
	if in.o.Sink != nil {
		in.o.Sink.Put(f.key, body)
	} else {
		in.bodies.put(body)
	}
	return commit, nil
}

func (in *Ingester) encodeAndPut(ctx context.Context, f *flight) (*metadata.Commit, []byte, error) {
	err := in.takeSlot(f)
	close(f.started) // the next one may queue for a slot
	if err != nil {
		return nil, nil, err
	}
	defer func() { <-in.slots }()
	if err := in.advance(f, stateEncoding); err != nil {
		return nil, nil, err
	}
	_, span := in.tracer.Start(ctx, "ingest.encode")
	commit, body, err := in.build(f)
	span.End()
	if err != nil {
		return nil, nil, err
	}
	failpoint.Hit(failpoint.BeforePut)
	if err := in.advance(f, stateUploading); err != nil {
		return nil, nil, err
	}
	ctx, span = in.tracer.Start(ctx, "ingest.upload")
	defer span.End()
	begin := in.o.Clock.Now()
	timer := in.o.Clock.AfterFunc(in.o.UploadTimeout, func() { f.cancel(errUploadTimeout) })
	_, err = in.o.Store.PutIfAbsent(ctx, f.key, body, f.id.String())
	timer.Stop()
	in.m.upload(in.o.Clock.Since(begin), len(body), err)
	if err != nil {
		// Even if the object is there now or appears later, no commit will ever name it: definite for the client.
		span.SetStatus(codes.Error, err.Error())
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return nil, nil, fmt.Errorf("upload segment %s: %w", f.key, err)
	}
	failpoint.Hit(failpoint.AfterPut)
	if err := in.advance(f, stateUploaded); err != nil {
		return nil, nil, err
	}
	return commit, body, nil
}

// takeSlot waits for an upload slot, in seal order.
func (in *Ingester) takeSlot(f *flight) error {
	select {
	case <-f.prevStarted:
	case <-f.ctx.Done():
		return context.Cause(f.ctx)
	}
	select {
	case in.slots <- struct{}{}:
		return nil
	case <-f.ctx.Done():
		return context.Cause(f.ctx)
	}
}

// advance moves f on, unless it was doomed meanwhile.
func (in *Ingester) advance(f *flight, next state) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if f.doomed != nil {
		return f.doomed
	}
	f.enterLocked(next)
	return nil
}

func (f *flight) enterLocked(next state) {
	if !f.state.canFollow(next) {
		panic(fmt.Sprintf("ingest: segment %s cannot go from %s to %s", f.key, f.state, next))
	}
	f.state = next
}

// doomedBefore waits for turn, and says whether f is doomed by then. It returns as soon as f is.
func (in *Ingester) doomedBefore(f *flight, turn <-chan struct{}) bool {
	select {
	case <-turn:
	case <-f.ctx.Done():
	}
	in.mu.Lock()
	doomed := f.doomed != nil
	in.mu.Unlock()
	if !doomed {
		<-turn // the upload's time ran out just when it had succeeded, or the node stops: either way it is not decided yet
	}
	return doomed
}

// submit hands the commit to the metadata log. It is called in seal order.
func (in *Ingester) submit(f *flight, commit *metadata.Commit) (*metadata.Pending, error) {
	// A log without a quorum would leave the outcome open until it is back. Nothing is submitted yet, so a clear no is still possible.
	if err := in.o.Committer.Available(); err != nil {
		in.doom(f, err)
	} else if err := in.ctx.Err(); err != nil {
		in.doom(f, err) // Close is out of patience, and would not wait for the outcome
	}
	// A refused commit dooms what is behind it, but its own goroutine may not have come round to that yet.
	if err := in.refused(in.previous); err != nil {
		in.doom(f, behindLost(err))
	}
	if err := in.advance(f, stateSubmitted); err != nil {
		return nil, err
	}
	f.pending = in.o.Committer.SubmitCommit(commit)
	in.previous = f
	return f.pending, nil
}

// refused gives the error of a submitted commit that failed and has not doomed what is behind it, or nil.
func (in *Ingester) refused(f *flight) error {
	if f == nil {
		return nil
	}
	select {
	case <-f.pending.Done():
	default:
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if f.doomed != nil {
		return nil
	}
	_, err := f.pending.Result()
	return err
}

// behindLost is what those are told that were not submitted when a commit before them was refused or lost from sight.
func behindLost(err error) error {
	if api.CodeOf(err) != api.CodeOutcomeUnknown {
		return err
	}
	return api.Errorf(api.CodeMetadataUnavailable, "the metadata log lost sight of a commit before this one; nothing was stored: %w", err)
}

// await waits for the outcome of a submitted commit and gives it to the requests.
func (in *Ingester) await(f *flight, pending *metadata.Pending, commit *metadata.Commit) state {
	select {
	case <-pending.Done():
	case <-in.ctx.Done(): // Close was out of patience
		select {
		case <-pending.Done():
		default:
			f.failRequests(api.Errorf(api.CodeOutcomeUnknown, "the node stopped before the outcome was known"))
			return stateAbandoned
		}
	}
	results, err := pending.Result()
	if err != nil {
		// Those submitted behind it are the log's to order, those not yet submitted are ours.
		in.doom(f, behindLost(err))
		if api.CodeOf(err) == api.CodeOutcomeUnknown {
			f.failRequests(err)
			return stateAbandoned
		}
		return stateFailed
	}
	failpoint.Hit(failpoint.AfterCommit)
	if len(results) != len(commit.Batches) {
		in.o.Logger.Error("metadata log answered for another number of batches", "segment", f.key, "batches", len(commit.Batches), "results", len(results))
		f.failRequests(api.Errorf(api.CodeOutcomeUnknown, "the commit was answered incompletely"))
		return stateCommitted
	}
	f.resolve(results)
	return stateCommitted
}

// resolve gives every request the outcome of its batches.
func (f *flight) resolve(results []metadata.BatchResult) {
	next := make([]int64, len(f.seg.batches)) // ordinal of the batch's next part
	for i := range f.seg.parts {
		p := &f.seg.parts[i]
		if p.req.stage == withdrawn { // withdrawal ended with sealing, so that this cannot change any more
			continue
		}
		res := &results[f.seg.batches[p.batch].place]
		sl := &p.req.slots[p.slot]
		at := next[p.batch]
		next[p.batch] += int64(sl.records)
		sl.err, sl.duplicate = res.Err, res.Duplicate
		if res.Offsets != nil && res.Err == nil {
			sl.offsets = res.Offsets[at : at+int64(sl.records)]
		}
		sl.base = res.Base + at
	}
	for _, r := range f.seg.requests {
		if r.stage != withdrawn {
			r.err = r.outcome()
		}
	}
}

func (f *flight) failRequests(err error) {
	for _, r := range f.seg.requests {
		if r.stage != withdrawn {
			r.err = err
		}
	}
}

// doom decides that f fails, and with it whatever was accepted after it and is not submitted yet: the flights behind it, the open segment,
// and the requests that are just being encoded. Otherwise a producer's later sequence could be stored while an earlier one is not, and the
// retry of the earlier one would be taken for a duplicate.
func (in *Ingester) doom(f *flight, cause error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if f.doomed != nil {
		return // by an earlier one, whose cascade has covered all that this would
	}
	err := in.clientError(f, cause)
	f.doomed = err
	f.cancel(err)
	in.mu.failures++
	in.mu.lastFailure = err
	victims := 0
	for _, g := range in.mu.flights[slices.Index(in.mu.flights, f)+1:] {
		if g.state < stateSubmitted && g.doomed == nil {
			g.doomed = err
			g.cancel(err)
			victims++
		}
	}
	if in.mu.open.waiting > 0 {
		g := in.sealLocked(sealCascade)
		g.doomed = err
		g.cancel(err)
		victims++
	}
	in.m.failedSegments.Add(float64(1 + victims))
	in.o.Logger.Warn("segment failed", "segment", f.key, "state", f.state.String(), "failedWithIt", victims, "error", cause)
}

// clientError is what the requests of a failed segment are told: definitely not stored.
func (in *Ingester) clientError(f *flight, cause error) *api.Error {
	var e *api.Error
	switch {
	case errors.As(cause, &e):
		return e
	case in.ctx.Err() != nil:
		e = api.Errorf(api.CodeOverloaded, "the node is shutting down; nothing was stored")
	case errors.Is(cause, segment.ErrInvalidBatch):
		e = api.Errorf(api.CodeInternal, "the segment could not be built; nothing was stored")
	case f.state == stateSubmitted:
		e = api.Errorf(api.CodeMetadataUnavailable, "the metadata log refused the commit; nothing was stored")
	default:
		e = api.Errorf(api.CodeStorageUnavailable, "the object store did not take the segment in time; nothing was stored")
	}
	e.RetryAfter = retryAfter
	e.Cause = cause
	return e
}

// finish ends f: budgets are given back and every request is answered.
func (in *Ingester) finish(f *flight, end state) {
	now := in.o.Clock.Now()
	if end == stateFailed {
		in.mu.Lock()
		err := f.doomed
		in.mu.Unlock()
		f.failRequests(err)
	}
	in.mu.Lock()
	f.enterLocked(end)
	if f.uploading {
		f.uploading = false
		in.mu.uploading--
	}
	in.mu.flights = slices.DeleteFunc(in.mu.flights, func(g *flight) bool { return g == f })
	requests := slices.DeleteFunc(f.seg.requests, func(r *request) bool { return r.stage == withdrawn })
	for _, r := range requests {
		r.stage = answered
		in.releaseLocked(r)
	}
	in.mu.Unlock()
	in.m.finished(f, end, now)
	f.seg = nil // the next flight keeps f until it is submitted itself
	for _, r := range requests {
		in.buffers.put(r.buf) // only where the segment was not built
		r.buf = nil
		r.done <- struct{}{} // from here on r belongs to its caller
	}
	in.kick()
}

// links connects the flush to the sampled requests that it carries, at most maxLinks of them.
func (f *flight) links() []trace.Link {
	const maxLinks = 32
	var links []trace.Link
	for _, r := range f.seg.requests {
		if r.span.IsSampled() && len(links) < maxLinks {
			links = append(links, trace.Link{SpanContext: r.span})
		}
	}
	return links
}
