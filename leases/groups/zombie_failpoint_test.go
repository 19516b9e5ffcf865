//go:build failpoints

package groups

import (
	"testing"

	"github.com/forebaymq/forebay/internal/failpoint"
)

// The same story in a build without the fence: the test above would see it.
func TestZombieCommitWithoutTheFence(t *testing.T) {
	failpoint.Set(failpoint.NoGroupFence, true)
	defer failpoint.Set(failpoint.NoGroupFence, false)
	bubble(t, func(t *testing.T, f *fabric) {
		if at, err := zombie(t, f); err != nil || at != 1 {
			t.Fatalf("the fence is removed and nothing happened: at %d, %v", at, err)
		}
	})
}
