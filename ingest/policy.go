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
	quietGaps            = 4 // mean gaps between arrivals: the same on a busier node, up to half of the linger
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
	Doubt     bool          // it is not known, or has to be found out again, that waiting for more than Peak gathers nothing
	MeanGap   time.Duration // between arrivals, smoothed
	SinceLast time.Duration // since the last arrival
	Draining  bool
}

// verdict is the answer of decide: seal now for a reason, or ask again after Wait unless something happens before.
type verdict struct {
	Reason reason
	Wait   time.Duration
	Probe  bool // would be sealed as idle, but for the doubt: what comes from now on shows whether waiting was worth it
}

// decide is the whole flush policy. Three wishes pull at it: a lone client wants the latency of the store, not the linger; concurrent
// clients should share a segment; and a steady stream should cost few PUTs, one a linger at most.
//
// The way out is to ask what waiting could still gather. Requests are answered only when their segment is committed, so clients that
// wait for answers cannot send more: once as many requests wait as were ever open at one time lately (Peak), and nothing is in flight
// whose answers would free others, waiting gathers nothing and the segment goes at once. Independent senders look the same as long as
// each is answered before the next one comes. So the node probes: now and then it waits although everyone seems to be there, for a
// short silence or for the linger, and learns from what comes.
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
	case s.MeanGap >= l.Linger:
		return verdict{Reason: sealIdle}
	}
	everyone := s.Waiting >= s.Peak
	if everyone && !s.Doubt {
		return verdict{Reason: sealIdle}
	}
	quiet := min(max(l.Linger/quietFraction, quietGaps*s.MeanGap), l.Linger/2)
	if s.SinceLast >= quiet {
		return verdict{Reason: sealQuiet}
	}
	return verdict{Wait: min(l.Linger-s.Age, quiet-s.SinceLast), Probe: everyone}
}

// meter measures arrivals for decide. It has no clock of its own.
type meter struct {
	linger      time.Duration
	outstanding int // requests accepted and unanswered
	now, before int // peaks of outstanding in this window and the one before
	windowStart time.Time
	last        time.Time // arrival
	meanGap     time.Duration

	trusted   bool      // waiting for more than the peak gathers nothing
	fruitless int       // probes in a row that gathered nothing
	probed    time.Time // the last probe
}

const (
	windowLingers = 8  // lingers in one window of the peak
	gapLingers    = 4  // longest gap that counts, in lingers: a night's silence must not outweigh a morning's traffic
	gapSmoothing  = 8  // an arrival weighs one in eight
	probeLingers  = 10 // from one probe to the next; a fruitless one costs an eighth of a linger on a busy node, about 1 % of the time
	probesToTrust = 3  // fruitless ones in a row: independent senders are silent for a moment, too
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

// doubt says whether the next segment should wait even if everyone seems to be there.
func (m *meter) doubt(now time.Time) bool {
	return !m.trusted || now.Sub(m.probed) >= probeLingers*m.linger
}

// learn takes the result of a probe: whether anything came while it waited.
func (m *meter) learn(now time.Time, gathered bool) {
	m.probed = now
	if gathered {
		m.trusted, m.fruitless = false, 0
		return
	}
	m.fruitless++
	m.trusted = m.trusted || m.fruitless >= probesToTrust
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
