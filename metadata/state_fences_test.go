//go:build failpoints

package metadata

import (
	"testing"

	"github.com/forebaymq/forebay/internal/failpoint"
)

// The broken builds are broken: without its fence, a commit that comes twice is stored twice, and an old one is taken.
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
}
