package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// RunCompactor runs a compactor without a node until ctx ends. ready gets the bound address of its port for operators.
func RunCompactor(ctx context.Context, c Config, ready func(ops string) error) (err error) {
	c = c.WithDefaults()
	c.Compaction.Off = false
	s, err := OpenStorage(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.OpsListen)
	if err != nil {
		return fmt.Errorf("listen for operators: %w", err)
	}
	server := &http.Server{Handler: s.opsHandler(c), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	s.Compactor.Start(ctx)
	if err = ready(l.Addr().String()); err == nil {
		c.Logger.Info("compactor is ready", "node", c.NodeID, "fabric", s.Log.Fabric().ID, "revision", s.Log.Revision())
		select {
		case <-ctx.Done():
		case err = <-served:
			return fmt.Errorf("serve operators: %w", err)
		}
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.DrainTimeout)
	defer cancel()
	err = errors.Join(err, server.Shutdown(end))
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// opsHandler serves probes, metrics and the report of a compactor alone.
func (s *Storage) opsHandler(c Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"status":"alive"}`+"\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.Log.Available(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, `{"status":"ready"}`+"\n")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.Registry, promhttp.HandlerOpts{Registry: c.Registry}))
	mux.HandleFunc("GET /debug/storage", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.Compactor.Report())
	})
	return mux
}
