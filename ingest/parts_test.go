package ingest

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
)

func TestIDsRiseAndAreNeverReused(t *testing.T) {
	ids := newIDSource(&countingReader{})
	at := time.UnixMilli(1_700_000_000_000)
	var last ulid.ULID
	for i, step := range []time.Duration{0, 0, time.Millisecond, -time.Hour, 0, 2 * time.Hour, 0} {
		at = at.Add(step)
		id, err := ids.next(at)
		if err != nil {
			t.Fatal(err)
		}
		if id.Compare(last) <= 0 {
			t.Errorf("step %d: %s does not rise above %s", i, id, last)
		}
		if id.Time() < ulid.Timestamp(at) {
			t.Errorf("step %d: ID of %d at %d", i, id.Time(), ulid.Timestamp(at))
		}
		last = id
	}
	ids = newIDSource(bytes.NewReader(nil))
	if _, err := ids.next(at); err == nil {
		t.Error("an ID without entropy")
	}
	// All of 2^80 used up within a millisecond: the next millisecond's is taken.
	ids = newIDSource(&repeatReader{0xff})
	a, err1 := ids.next(at)
	ids.entropy = ulid.Monotonic(&countingReader{}, 0)
	b, err2 := ids.next(at)
	if err1 != nil || err2 != nil || b.Compare(a) == 0 {
		t.Errorf("%s %v, %s %v", a, err1, b, err2)
	}
}

type countingReader struct{ n byte }

func (r *countingReader) Read(p []byte) (int, error) {
	for i := range p {
		r.n++
		p[i] = r.n
	}
	return len(p), nil
}

type repeatReader struct{ b byte }

func (r *repeatReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r.b
	}
	return len(p), nil
}

func TestBuffersAreLentBySize(t *testing.T) {
	var p bufferPool
	for n, want := range map[int]int{0: 1024, 1: 1024, 1024: 1024, 1025: 2048, 1 << 20: 1 << 20, 1<<20 + 1: 0} {
		b := p.get(n)
		if len(b.b) != n || want != 0 && cap(b.b) != want || cap(b.b) < n {
			t.Errorf("get(%d): len %d cap %d", n, len(b.b), cap(b.b))
		}
		p.put(b)
	}
	p.put(nil)
	p.put(&buffer{b: make([]byte, 3000)}) // not one of ours
	p.put(&buffer{b: make([]byte, 512)})
	if b := p.get(2048); cap(b.b) != 2048 {
		t.Errorf("cap %d", cap(b.b))
	}
}

func TestBudget(t *testing.T) {
	b := newBudget(100, 60)
	take := func(tenant string, n int64, want refusal) {
		t.Helper()
		why, err := b.take(tenant, n)
		if why != want || (err == nil) != (want == "") {
			t.Fatalf("take %s %d: %q %v, want %q", tenant, n, why, err, want)
		}
		if err != nil && err.RetryAfter <= 0 {
			t.Error("a refusal without Retry-After")
		}
	}
	take("a", 60, "")
	take("a", 1, refusedTenant)
	take("b", 41, refusedNode)
	take("b", 40, "")
	b.give("a", 60)
	take("c", 60, "")
	b.give("b", 40)
	b.give("c", 60)
	if b.used != 0 || len(b.tenants) != 0 {
		t.Errorf("left: %d, %v", b.used, b.tenants)
	}
}

func TestOptions(t *testing.T) {
	o := Options{}.WithDefaults()
	if o.SegmentBytes != 8<<20 || o.Linger != 50*time.Millisecond || o.MaxTenantBytes != o.MaxInFlightBytes/2 || o.Clock == nil || o.Rand == nil || o.Logger == nil {
		t.Errorf("defaults %+v", o)
	}
	o.SegmentBytes, o.Linger, o.MaxTenantBytes, o.UploadConcurrency, o.CommitBytes = -1, -1, o.MaxInFlightBytes+1, 1000, 2<<20
	o.SegmentBatches, o.BatchBytes, o.UploadTimeout, o.MaxInFlightBytes = -1, -1, -1, -1
	err := o.Validate()
	if err == nil {
		t.Fatal("valid")
	}
	for _, field := range []string{"Store", "Committer", "SegmentBytes", "SegmentBatches", "CommitBytes", "BatchBytes", "Linger", "MaxInFlightBytes",
		"MaxTenantBytes", "UploadConcurrency", "UploadTimeout"} {
		if !strings.Contains(err.Error(), "ingest: "+field+" ") {
			t.Errorf("fault of %s not reported in %v", field, err)
		}
	}
	if _, err := New(Options{}); err == nil {
		t.Error("started without a store")
	}
	f := start(t, nil)
	if _, err := New(Options{Store: f.store, Committer: f.log, Registerer: f.reg}); err == nil {
		t.Error("metrics registered twice")
	}
}

func TestStatesFollowTheDiagram(t *testing.T) {
	allowed := map[state][]state{
		stateSealed:    {stateEncoding, stateFailed},
		stateEncoding:  {stateUploading, stateFailed},
		stateUploading: {stateUploaded, stateFailed},
		stateUploaded:  {stateSubmitted, stateFailed},
		stateSubmitted: {stateCommitted, stateFailed, stateAbandoned},
		stateCommitted: nil, stateFailed: nil, stateAbandoned: nil,
	}
	for from := range allowed {
		for to := range allowed {
			want := false
			for _, s := range allowed[from] {
				want = want || s == to
			}
			if from.canFollow(to) != want {
				t.Errorf("%s to %s: %v", from, to, !want)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a wrong step is not noticed")
		}
	}()
	(&flight{state: stateCommitted}).enterLocked(stateSubmitted)
}

func TestOwnErrorLeavesOthersAlone(t *testing.T) {
	plain := errors.New("plain")
	if ownError(plain) != plain {
		t.Error("changed")
	}
}
