package ingest

import (
	"io"
	"time"

	"github.com/oklog/ulid/v2"
)

// idSource makes segment IDs that rise strictly and are never used twice: their time is the seal time, or the last ID's when the clock
// went back. (An ID ahead of the clock is safe: the collector and apply compare the same ID with the GC boundary.)
type idSource struct {
	entropy *ulid.MonotonicEntropy
	last    uint64 // Unix ms
}

func newIDSource(r io.Reader) *idSource {
	return &idSource{entropy: ulid.Monotonic(r, 0)}
}

func (s *idSource) next(now time.Time) (ulid.ULID, error) {
	ms := max(ulid.Timestamp(now), s.last)
	id, err := ulid.New(ms, s.entropy)
	if err == ulid.ErrMonotonicOverflow { // 2^80 exhausted within a millisecond: the next one starts afresh
		ms++
		id, err = ulid.New(ms, s.entropy)
	}
	if err != nil {
		return ulid.ULID{}, err
	}
	s.last = ms
	return id, nil
}
