package gateway

import (
	"encoding/json"
	"net/http"

	"github.com/forebaymq/forebay/api"
)

// alive says whether the process should go on: nil unless a port ended by itself.
func (s *Server) alive() error {
	if s.phase.Load() == phaseFailed {
		return api.Errorf(api.CodeInternal, "a port of the node has ended by itself")
	}
	return nil
}

// ready says whether the node should get requests: it is not draining, its view is loaded, and the metadata log has a quorum. The
// object store is not asked: a probe must not cost a call to it, and reads from the cache go on without it.
func (s *Server) ready() error {
	switch s.phase.Load() {
	case phaseServing:
	case phaseFailed:
		return s.alive()
	default:
		return api.Errorf(api.CodeOverloaded, "the node is shutting down; use another one")
	}
	if err := s.o.Health.Available(); err != nil {
		return err
	}
	if !s.o.Health.Status().Ready {
		return api.Errorf(api.CodeMetadataUnavailable, "the node has not caught up with the metadata log")
	}
	return nil
}

// getHealth serves GET /healthz.
func (s *Server) getHealth(rq *request) error { return rq.respondState(s.alive(), "alive", nil) }

// getReady serves GET /readyz.
func (s *Server) getReady(rq *request) error {
	return rq.respondState(s.ready(), "ready", s.degraded())
}

// degraded says what does not work on this node although it is ready.
func (s *Server) degraded() map[string]string {
	if s.o.Degraded == nil {
		return nil
	}
	return s.o.Degraded()
}

func (rq *request) respondState(err error, status string, degraded map[string]string) error {
	if err != nil {
		return err
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte { return appendState(b, status, degraded) })
}

func appendState(b []byte, status string, degraded map[string]string) []byte {
	b = append(append(append(b, `{"status":"`...), status...), '"')
	if len(degraded) > 0 {
		doc, err := json.Marshal(degraded)
		if err != nil {
			panic("assertion failed: strings have a JSON form: " + err.Error())
		}
		b = append(append(b, `,"degraded":`...), doc...)
	}
	return append(b, '}')
}
