//go:build !failpoints

package failpoint

// Active says whether this build can remove fences and kill itself.
const Active = false

// Hit does nothing in an ordinary build.
func Hit(string) {}

// Enabled is false in an ordinary build.
func Enabled(string) bool { return false }
