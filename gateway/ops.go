package gateway

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/wire"
)

// opsHandler serves the port for operators: probes, metrics, profiles and the state of the node. It has no authentication and belongs on
// an address that only operators reach.
func (s *Server) opsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { s.opsState(w, s.alive(), "alive", nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { s.opsState(w, s.ready(), "ready", s.degraded()) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.o.Gatherer, promhttp.HandlerOpts{
		Registry: s.o.Registerer,
		ErrorLog: promLog{s},
	}))
	mux.HandleFunc("GET /debug/state", s.opsDebugState)
	for name, document := range s.o.Debug {
		mux.HandleFunc("GET /debug/"+name, func(w http.ResponseWriter, r *http.Request) { s.opsDocument(w, document()) })
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.opsState(w, api.Errorf(api.CodeNotFound, "this port has /healthz, /readyz, /metrics, /debug/state and /debug/pprof/"), "", nil)
	})
	return mux
}

type promLog struct{ s *Server }

func (l promLog) Println(v ...any) { l.s.o.Logger.Warn("collect metrics", "error", v) }

// opsState answers a probe.
func (s *Server) opsState(w http.ResponseWriter, err error, status string, degraded map[string]string) {
	if err == nil {
		w.Header().Set("Content-Type", typeJSON)
		_, _ = w.Write(appendState(nil, status, degraded))
		return
	}
	code, doc := wire.AppendProblem(nil, err, "")
	w.Header().Set("Content-Type", wire.ProblemType)
	if after := wire.RetryAfter(err); after != "" {
		w.Header().Set("Retry-After", after)
	}
	w.WriteHeader(code)
	_, _ = w.Write(doc)
}

// opsDebugState tells what the node knows: its version and phase, its place in the metadata log, and what Options.DebugState adds.
func (s *Server) opsDebugState(w http.ResponseWriter, r *http.Request) {
	status := s.o.Health.Status()
	state := map[string]any{
		"version": s.o.Version,
		"region":  s.o.Region,
		"phase":   [...]string{"new", "serving", "draining", "stopped", "failed"}[s.phase.Load()],
		"metadata": map[string]any{
			"ready": status.Ready, "revision": status.Revision, "stuck": status.Stuck.Round(time.Millisecond).String(), "submitted": status.Submitted,
		},
	}
	if s.o.DebugState != nil {
		state["state"] = s.o.DebugState()
	}
	s.opsDocument(w, state)
}

// opsDocument answers with the JSON form of v.
func (s *Server) opsDocument(w http.ResponseWriter, v any) {
	doc, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		s.o.Logger.Error("debug state has no JSON form", "error", err)
		s.opsState(w, err, "", nil)
		return
	}
	w.Header().Set("Content-Type", typeJSON)
	_, _ = w.Write(append(doc, '\n'))
}
