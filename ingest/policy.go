package ingest

import "time"

// reason says why a segment was sealed. It is a metric label.
type reason string

const (
	keepOpen      reason = ""        // not sealed
	sealSize      reason = "size"    // full, or the next request did not fit
	sealBatches   reason = "batches" // the commit would become too large for one metadata entry
	sealLinger    reason = "linger"  // its first record has waited long enough
	sealIdle      reason = "idle"    // nobody else is expected: waiting would gather nothing
	sealQuiet     reason = "quiet"   // those who used to come have stopped coming
	sealDrain     reason = "drain"   // shutdown
	sealCascade   reason = "cascade" // an earlier segment failed, so this one must
	forever              = time.Duration(1<<63 - 1)
	quietFraction        = 8 // of the linger: the shortest silence that counts as quiet
	quietGaps            = 4 // mean gaps between arrivals: the same, on a busy node
)

var sealReasons = [...]reason{sealSize, sealBatches, sealLinger, sealIdle, sealQuiet, sealDrain, sealCascade}

// flushLimits are the bounds that decide works with.
type flushLimits struct {
	SegmentBytes int
	Batches      int
	CommitBytes  int
	Linger       time.Duration
	Uploads      int
}

// flushState is what the node knows when it asks whether to seal the open segment.
type flushState struct {
	Waiting     int           // requests in the open segment
	Bytes       int           // encoded bytes in it
	Batches     int           // batches in it
	CommitBytes int           // estimated bytes of its commit
	Age         time.Duration // since its first record

	Entering  int // requests accepted and just being encoded: here within microseconds
	Uploading int // sealed segments not uploaded yet
	InFlight  int // sealed segments without an outcome

	Peak      int           // most requests that were open at one time lately (entering, waiting and in flight together)
	MeanGap   time.Duration // between arrivals, smoothed
	SinceLast time.Duration // since the last arrival
	Draining  bool
}

// verdict is the answer of decide: seal now for a reason, or ask again after Wait unless something happens before.
type verdict struct {
	Reason reason
	Wait   time.Duration
}

// decide is the whole flush policy. Three wishes pull at it: a lone client wants the latency of the store, not the linger; concurrent
// clients should share a segment; and a steady stream should cost few PUTs, one a linger at most.
//
// The way out is to ask what waiting could still gather. Requests are answered only when their segment is committed, so clients that
// wait for answers cannot send more: once as many requests wait as were ever open at one time lately (Peak), and nothing is in flight
// whose answers would free others, waiting is useless and the segment goes at once. Under an open stream of arrivals Peak rises
// with every segment (those that arrive during a commit add to it) until the linger decides, and stays there.
func decide(l flushLimits, s flushState) verdict {
	switch {
	case s.Waiting == 0:
		return verdict{Wait: forever}
	case s.Draining:
		return verdict{Reason: sealDrain}
	case s.Bytes >= l.SegmentBytes:
		return verdict{Reason: sealSize}
	case s.Batches >= l.Batches, s.CommitBytes >= l.CommitBytes:
		return verdict{Reason: sealBatches}
	case s.Uploading >= l.Uploads:
		return verdict{Wait: forever} // it could not start: let it grow until an upload ends
	case s.Age >= l.Linger:
		return verdict{Reason: sealLinger}
	case s.InFlight > 0, s.Entering > 0:
		return verdict{Wait: l.Linger - s.Age}
	case s.MeanGap >= l.Linger, s.Waiting >= s.Peak:
		return verdict{Reason: sealIdle}
	}
	quiet := max(l.Linger/quietFraction, quietGaps*s.MeanGap)
	if s.SinceLast >= quiet {
		return verdict{Reason: sealQuiet}
	}
	return verdict{Wait: min(l.Linger-s.Age, quiet-s.SinceLast)}
}

// meter measures arrivals for decide. It has no clock of its own.
type meter struct {
	linger      time.Duration
	outstanding int // requests accepted and unanswered
	now, before int // peaks of outstanding in this window and the one before
	windowStart time.Time
	last        time.Time // arrival
	meanGap     time.Duration
}

const (
	windowLingers = 8 // lingers in one window of the peak
	gapLingers    = 4 // longest gap that counts, in lingers: a night's silence must not outweigh a morning's traffic
	gapSmoothing  = 8 // an arrival weighs one in eight
)

func newMeter(linger time.Duration, now time.Time) meter {
	return meter{linger: linger, windowStart: now, last: now, meanGap: gapLingers * linger}
}

// arrive counts one accepted request.
func (m *meter) arrive(now time.Time) {
	gap := min(max(now.Sub(m.last), 0), gapLingers*m.linger)
	m.meanGap += (gap - m.meanGap) / gapSmoothing
	m.last = now
	m.roll(now)
	m.outstanding++
	m.now = max(m.now, m.outstanding)
}

// leave counts n requests that were answered or withdrawn.
func (m *meter) leave(n int) { m.outstanding -= n }

// peak gives the most requests outstanding at one time in this window and the one before.
func (m *meter) peak(now time.Time) int {
	m.roll(now)
	return max(m.now, m.before)
}

func (m *meter) roll(now time.Time) {
	window := windowLingers * m.linger
	switch age := now.Sub(m.windowStart); {
	case age < window:
		return
	case age < 2*window:
		m.before = m.now
	default:
		m.before = m.outstanding
	}
	m.now, m.windowStart = m.outstanding, now
}
