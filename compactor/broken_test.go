//go:build failpoints

package compactor

import (
	"testing"

	"github.com/forebaymq/forebay/internal/failpoint"
)

// TestStalledWriterIsCaught: in a build without the GC boundary, the commit of a writer that was stalled for longer than the grace is accepted
// although its object has been deleted. TestStalledWriter's checks must see that.
func TestStalledWriterIsCaught(t *testing.T) {
	failpoint.Set(failpoint.NoGCBoundary, true)
	t.Cleanup(func() { failpoint.Set(failpoint.NoGCBoundary, false) })
	w := newWorld(t)
	if faults := stallWriter(w); len(faults) == 0 {
		t.Error("a build without the GC boundary passes the test of a stalled writer")
	}
}
