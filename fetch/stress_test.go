package fetch

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
)

// Writers commit and put while readers tail and others scan, with caches far too small and data turning old: each reader sees every record
// once and in order.
func TestTailAndScanUnderWrites(t *testing.T) {
	w := newWorld(t)
	const batches, perBatch = 100, 20
	clock := clockwork.NewFakeClockAt(time.UnixMilli(testNow))
	f := w.fetcher(Options{Clock: clock, OldAge: 30 * time.Second, BlockBytes: 500, CacheBytes: 20_000, OldReads: 2, OldBytesPerSecond: -1, ReadAhead: 3})
	var wg sync.WaitGroup
	reader := func(maxRecords int, tail bool) {
		offset := int64(0)
		for offset < batches*perBatch {
			r := request(offset)
			r.MaxRecords = maxRecords
			var res *ReadResult
			var err error
			if tail {
				res, err = f.ReadWait(context.Background(), r, nil)
			} else {
				res, err = f.Read(context.Background(), r)
			}
			if err != nil {
				t.Errorf("read at %d: %v", offset, err)
				return
			}
			for _, rec := range res.Records {
				if rec.Offset != offset || !strings.HasPrefix(string(rec.Value), fmt.Sprint(offset, " ")) {
					t.Errorf("at %d: %d:%s", offset, rec.Offset, rec.Value)
					return
				}
				offset++
			}
			if res.NextOffset != offset {
				t.Errorf("next is %d after %d", res.NextOffset, offset)
				return
			}
		}
	}
	for i := range 4 {
		wg.Go(func() { reader(1+i*7, true) })
	}
	written := make(chan struct{})
	for i := range 2 {
		wg.Go(func() {
			<-written
			reader(3+i*10, false)
		})
	}
	for i := range batches {
		var vs []string
		for j := range perBatch {
			vs = append(vs, fmt.Sprint(i*perBatch+j, " ", strings.Repeat("x", j)))
		}
		w.commit(values(vs...))
		if i%2 == 0 {
			f.Put(w.lastKey, w.last)
		}
		clock.Advance(time.Second)
		if i == batches/2 {
			close(written)
		}
	}
	wg.Wait()
}
