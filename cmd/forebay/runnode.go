package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/forebaymq/forebay/internal/node"
	"github.com/forebaymq/forebay/leases/store"
)

// runNode starts a node, calls ready, and stops it at the first SIGINT or SIGTERM. A second signal ends the process at once.
func runNode(ctx context.Context, c node.Config, ready func(*node.Node) error) error {
	store.LogClient(c.Logger)
	n, err := node.New(c)
	if err != nil {
		return usageError{err}
	}
	signalled, stop := withSignals(ctx)
	defer stop()
	if err := n.Start(signalled); err != nil {
		return err
	}
	err = ready(n)
	if err == nil {
		<-signalled.Done()
		c.Logger.Info("draining; a second signal ends the process at once")
	}
	begin := time.Now()
	err = errors.Join(err, n.Stop(context.WithoutCancel(ctx)))
	if err == nil {
		c.Logger.Info("stopped", slog.String("took", fmt.Sprint(time.Since(begin).Round(time.Millisecond))))
	}
	return err
}
