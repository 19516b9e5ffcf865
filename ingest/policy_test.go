package ingest

import (
	"testing"
	"time"
)

func TestDecide(t *testing.T) {
	const ms = time.Millisecond
	l := flushLimits{SegmentBytes: 1000, Batches: 10, CommitBytes: 500, Linger: 80 * ms, Uploads: 2}
	// A busy node with company expected: only the linger would seal.
	busy := flushState{Waiting: 3, Bytes: 100, Batches: 1, CommitBytes: 50, Age: 20 * ms, Peak: 9, MeanGap: 2 * ms, SinceLast: 1 * ms}
	with := func(change func(*flushState)) flushState {
		s := busy
		change(&s)
		return s
	}
	for _, c := range []struct {
		name string
		s    flushState
		want verdict
	}{
		{"nothing waits", flushState{Draining: true, MeanGap: time.Hour}, verdict{Wait: forever}},
		{"company expected", busy, verdict{Wait: 9 * ms}}, // ask again when it has been quiet for an eighth of the linger
		{"little of the linger left", with(func(s *flushState) { s.Age = 78 * ms }), verdict{Wait: 2 * ms}},
		{"full", with(func(s *flushState) { s.Bytes = 1000; s.InFlight = 5; s.Uploading = 5; s.Entering = 1 }), verdict{Reason: sealSize}},
		{"too many batches", with(func(s *flushState) { s.Batches = 10; s.InFlight = 1 }), verdict{Reason: sealBatches}},
		{"commit too large", with(func(s *flushState) { s.CommitBytes = 500; s.InFlight = 1 }), verdict{Reason: sealBatches}},
		{"linger over", with(func(s *flushState) { s.Age = 80 * ms; s.InFlight = 1; s.Uploading = 1; s.Entering = 4 }), verdict{Reason: sealLinger}},
		{"linger over, no upload slot", with(func(s *flushState) { s.Age = 500 * ms; s.InFlight = 2; s.Uploading = 2 }), verdict{Wait: forever}},
		{"draining", with(func(s *flushState) { s.Draining = true; s.InFlight = 9; s.Uploading = 9 }), verdict{Reason: sealDrain}},
		{"a lone client on an idle node", flushState{Waiting: 1, Bytes: 1, Batches: 1, Peak: 1, MeanGap: 3 * ms}, verdict{Reason: sealIdle}},
		{"everyone waits here", with(func(s *flushState) { s.Waiting = 9 }), verdict{Reason: sealIdle}},
		{"everyone waits here, or so it seems", with(func(s *flushState) { s.Waiting = 9; s.Doubt = true }), verdict{Wait: 9 * ms, Probe: true}},
		{"everyone waits here, and it stays quiet", with(func(s *flushState) { s.Waiting = 9; s.Doubt = true; s.SinceLast = 10 * ms }), verdict{Reason: sealQuiet}},
		{"everyone waits here, but answers are on the way", with(func(s *flushState) { s.Waiting = 9; s.InFlight = 1 }), verdict{Wait: 60 * ms}},
		{"arrivals rarer than the linger", with(func(s *flushState) { s.MeanGap = 80 * ms }), verdict{Reason: sealIdle}},
		{"arrivals rare, one is being encoded", with(func(s *flushState) { s.MeanGap = 80 * ms; s.Entering = 1 }), verdict{Wait: 60 * ms}},
		{"the others have left", with(func(s *flushState) { s.SinceLast = 10 * ms }), verdict{Reason: sealQuiet}},
		{"silence means less when gaps are long", with(func(s *flushState) { s.SinceLast = 10 * ms; s.MeanGap = 4 * ms }), verdict{Wait: 6 * ms}},
		{"silence while answers are on the way", with(func(s *flushState) { s.SinceLast = 19 * ms; s.InFlight = 1 }), verdict{Wait: 60 * ms}},
	} {
		if got := decide(l, c.s); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestMeter(t *testing.T) {
	const linger = 50 * time.Millisecond
	now := time.UnixMilli(0)
	m := newMeter(linger, now)
	if m.meanGap < linger {
		t.Errorf("a new node expects company: mean gap %v", m.meanGap)
	}
	for range 40 {
		now = now.Add(time.Millisecond)
		m.arrive(now)
	}
	if m.meanGap < time.Millisecond/2 || m.meanGap > 4*time.Millisecond {
		t.Errorf("mean gap %v after arrivals every millisecond", m.meanGap)
	}
	m.leave(40)
	m.arrive(now)
	m.leave(1)
	if p := m.peak(now); p != 40 {
		t.Errorf("peak %d, want 40", p)
	}
	if p := m.peak(now.Add(9 * linger)); p != 40 {
		t.Errorf("peak %d in the next window, want 40 still", p)
	}
	if p := m.peak(now.Add(18 * linger)); p != 0 {
		t.Errorf("peak %d two windows later, want 0", p)
	}
	m.arrive(now.Add(24 * time.Hour))
	if m.meanGap > gapLingers*linger {
		t.Errorf("a night's silence counts %v", m.meanGap)
	}
	m.leave(1)
	m.arrive(now) // the clock went back
	if m.meanGap < 0 {
		t.Errorf("mean gap %v", m.meanGap)
	}
}

func TestMeterLearnsFromProbes(t *testing.T) {
	const linger = 50 * time.Millisecond
	now := time.UnixMilli(0)
	m := newMeter(linger, now)
	for range probesToTrust {
		if !m.doubt(now) {
			t.Fatal("no doubt before the probes")
		}
		m.learn(now, false)
	}
	if m.doubt(now) {
		t.Error("doubt although waiting gathered nothing")
	}
	now = now.Add(probeLingers * linger)
	if !m.doubt(now) {
		t.Error("no probe when it is due")
	}
	m.learn(now, false)
	if m.doubt(now) {
		t.Error("one more fruitless probe took the trust away")
	}
	m.learn(now, true)
	m.learn(now, false)
	if !m.doubt(now) {
		t.Error("no doubt right after waiting was worth it")
	}
}
