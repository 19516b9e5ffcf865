package client

import (
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

// Under the race detector, two goroutines of one synctest bubble that run a timer each at the same time end the process with "ThreadSanitizer: CHECK
// failed" (golang/go#78156): all timers of a bubble share one race context. These tests have many timers that are due at the same moment of fake time.
// On one processor none runs beside another.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	goleak.VerifyTestMain(m)
}
