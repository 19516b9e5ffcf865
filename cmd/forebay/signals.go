package main

import (
	"context"
	"os/signal"
	"syscall"
)

// withSignals ends the context at the first SIGINT or SIGTERM; after that the signals have their usual effect again, so a second one
// ends the process at once.
func withSignals(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
