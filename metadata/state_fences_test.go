//go:build failpoints

package metadata

import (
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/internal/failpoint"
)

// The broken builds are broken: without its fence, a commit that comes twice is stored twice, an old one is taken, and so is what a
// group's zombie writes.
func TestFencesCanBeRemoved(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(1))
	c := w.commit(nil, free(orders, 0, 3))
	wantBase(t, w.one(c).Batches[0], 0, false)

	failpoint.Set(failpoint.NoCommitDedup, true)
	wantBase(t, w.one(c).Batches[0], 3, false)
	failpoint.Set(failpoint.NoCommitDedup, false)
	w.one(c)
	if h := w.info(orders, 0).Head; h != 6 {
		t.Fatalf("head %d", h)
	}

	old := w.commit(nil, free(orders, 0, 1))
	w.one(&GCBoundary{Boundary: w.now + 1})
	failpoint.Set(failpoint.NoGCBoundary, true)
	wantBase(t, w.one(old).Batches[0], 6, false)
	failpoint.Set(failpoint.NoGCBoundary, false)

	w.tick(time.Minute)
	zombie := w.start(stGroupProducer)
	next := w.start(stGroupProducer)
	failpoint.Set(failpoint.NoGroupFence, true)
	wantBase(t, w.send(stGroupProducer, zombie, NoSequence, free(orders, 0, 1))[0], 7, false)
	wantCode(t, w.send(stGroupProducer, zombie, 1, free(orders, 0, 1))[0].Err, api.CodeProducerFenced)
	failpoint.Set(failpoint.NoGroupFence, false)
	wantRefused(t, w.send(stGroupProducer, zombie, NoSequence, free(orders, 0, 1)), api.CodeProducerFenced, next)
}
