package file

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs a crash test's child when it is one.
func TestMain(m *testing.M) {
	if root := os.Getenv(childRoot); root != "" {
		os.Exit(crashChild(root, os.Getenv(childName)))
	}
	goleak.VerifyTestMain(m)
}
