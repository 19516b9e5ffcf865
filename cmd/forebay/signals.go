package main

import (
	"context"
	"fmt"
	"os"
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

// drainSignals gives a context that ends at the second signal, and a channel that closes at the first. A third signal has its usual effect.
func drainSignals(ctx context.Context, e *env) (working context.Context, drain <-chan struct{}, stop func()) {
	working, abort := context.WithCancel(context.WithoutCancel(ctx))
	got := make(chan os.Signal, 2)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM)
	first, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
		case <-got:
			fmt.Fprintln(e.err, "forebay: finishing what runs; a second signal ends it")
		case <-working.Done():
			return
		}
		close(first)
		select {
		case <-got:
			signal.Stop(got)
			abort()
		case <-working.Done():
		}
	}()
	return working, first, func() { signal.Stop(got); abort(); <-done }
}
