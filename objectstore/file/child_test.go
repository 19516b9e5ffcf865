package file

import (
	"context"
	"io"
	"os"
)

// contextUntilStdinCloses ends when the parent closes our standard input, or dies.
func contextUntilStdinCloses() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // lives as long as this process
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx, cancel
}
