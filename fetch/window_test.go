package fetch

import (
	"testing"

	"github.com/jonboulle/clockwork"

	"github.com/forebaymq/forebay/segment"
)

// Scans of old data that need more memory than there is for what they load ahead read everything once all the same; and what an abandoned
// scan has left makes room for others.
func TestScansReadOldDataOnce(t *testing.T) {
	w := newWorld(t)
	w.compress = segment.CompressNone
	var batches [][]segment.Record
	for range 200 {
		batches = append(batches, bigRecords(10, 1000))
	}
	w.commit(batches...)
	clock := clockwork.NewFakeClock()
	f := w.fetcher(Options{BlockBytes: 1000, OldBlockBytes: 250, CacheBytes: 2_000_000, ReadAhead: 60, OldAge: 1, OldBytesPerSecond: -1, Clock: clock})
	scan := func(at, n int64) int64 { // of n batches
		r := request(at * 10)
		r.MaxRecords = 10
		for range n {
			r.Offset = w.read(f, r).NextOffset
			f.blocks.wg.Wait()
		}
		return r.Offset / 10
	}
	const scans = 8
	var at [scans]int64
	for i := range at {
		at[i] = int64(i * 200 / scans)
	}
	for range 200 / scans / 5 { // by turns
		for i := range at {
			at[i] = scan(at[i], 5)
		}
	}
	gets, read := w.store.gets.Load(), w.store.bytes.Load()
	t.Logf("%d GETs, %d bytes of %d", gets, read, len(w.last))
	if size := int64(len(w.last)); read > size+size/10 {
		t.Errorf("%d bytes were read of an object of %d", read, size)
	}
	// Another reader with nothing cached: scans stop in the middle until nothing more is loaded ahead.
	f = w.fetcher(Options{BlockBytes: 1000, OldBlockBytes: 250, CacheBytes: 600_000, ReadAhead: 200, OldAge: 1, OldBytesPerSecond: -1, Clock: clock})
	abandon := func(i int64) (ahead float64) {
		before := count(f.m.ahead)
		scan(20*i, 3)
		return count(f.m.ahead) - before
	}
	i := int64(0)
	for abandon(i) > 0 {
		if i++; i == 8 {
			t.Fatal("there is always room")
		}
	}
	clock.Advance(windowPatience)
	if abandon(i+1) == 0 {
		t.Error("nothing is loaded ahead any more: what abandoned scans have left takes all the room")
	}
}
