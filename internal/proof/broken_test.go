//go:build failpoints

package proof

import (
	"testing"

	"github.com/forebaymq/forebay/internal/failpoint"
)

// TestBrokenBuildsAreCaught removes one fence at a time. A checker that passes such a build proves nothing.
func TestBrokenBuildsAreCaught(t *testing.T) {
	for _, fence := range []string{failpoint.NoLinearizableRead, failpoint.NoCommitDedup} {
		t.Run(fence, func(t *testing.T) {
			failpoint.Set(fence, true)
			defer failpoint.Set(fence, false)
			for seed := range uint64(5) {
				if v := faultyHistory(t, seed); !v.OK {
					t.Logf("caught with seed %d: %v %v", seed, v.Result, v.Problems)
					return
				}
			}
			t.Error("five histories of a build without the fence were accepted")
		})
	}
}
