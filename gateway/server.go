package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"

	"github.com/forebaymq/forebay/gateway/wire"
)

// Server serves the REST API and the ops port. Made by New.
type Server struct {
	o       Options
	m       *metrics
	ids     *requestIDs
	tracer  trace.Tracer // nil = no spans
	echo    *echo.Echo
	routes  []route
	openapi []byte

	reader   wire.BodyReader
	buffers  buffers // answers being built
	bodies   *budget // decoded request bodies in memory
	answers  *budget // answers being sent
	followed *budget // partitions followed by event streams
	inFlight inflight
	keyless  atomic.Uint32 // start of the next request's round robin over partitions

	phase atomic.Int32
	// drain ends long polls and event streams; hard ends every request. Both are made by Start.
	drain, hard         context.Context
	cutDrain, cutHard   context.CancelFunc
	mainHTTP, opsHTTP   *http.Server
	mainBound, opsBound net.Addr
	serving             sync.WaitGroup

	mu struct {
		sync.Mutex
		started  bool
		startErr error
		stopped  chan struct{} // made by the first Stop, closed when it is done
		stopErr  error
	}
}

// Phases of a Server.
const (
	phaseNew      int32 = iota
	phaseServing        // requests are taken
	phaseDraining       // /readyz says 503, what runs may finish
	phaseStopped
	phaseFailed // a listener ended by itself
)

// New makes a Server that is not yet listening.
func New(o Options) (*Server, error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register gateway metrics: %w", err)
	}
	s := &Server{
		o:        o,
		m:        m,
		ids:      newRequestIDs(o.Clock, o.Random),
		bodies:   newBudget(o.Limits.MaxBodyBytes, m.bodyBytes),
		answers:  newBudget(o.Limits.MaxAnswerBytes, m.answerBytes),
		followed: newBudget(int64(o.Limits.MaxFollowed), m.followed),
		inFlight: inflight{max: o.Limits.MaxRequests},
	}
	if o.TracerProvider != nil {
		s.tracer = o.TracerProvider.Tracer("github.com/forebaymq/forebay/gateway", trace.WithInstrumentationVersion(o.Version))
	}
	if s.openapi, err = openAPIDocument(); err != nil {
		return nil, err
	}
	s.routes = s.routeTable()
	s.echo = s.newEcho()
	return s, nil
}

// newEcho registers the route table with a bare echo: no banner, no logger of its own, one middleware.
func (s *Server) newEcho() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Logger.SetOutput(io.Discard)
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		// observe has rendered every error by now; what gets here left a handler that observe did not wrap: a bug.
		s.o.Logger.Error("error outside of the middleware", "error", err)
	}
	e.Use(s.observe)
	for _, r := range s.routes {
		e.Add(r.method, r.path, r.handler)
	}
	return e
}

// Start binds both ports and serves them. A second call answers what the first one did. ctx is for the binding only: the server ends
// with Stop.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopped != nil {
		return errors.New("start gateway: it was stopped")
	}
	if s.mu.started {
		return s.mu.startErr
	}
	s.mu.started = true
	s.mu.startErr = s.bindAndServe(ctx)
	return s.mu.startErr
}

func (s *Server) bindAndServe(ctx context.Context) error {
	s.hard, s.cutHard = context.WithCancel(context.WithoutCancel(ctx))
	s.drain, s.cutDrain = context.WithCancel(s.hard)

	var certs *certReloader
	if s.o.TLSCertFile != "" {
		var err error
		if certs, err = newCertReloader(s.o.TLSCertFile, s.o.TLSKeyFile, s.o.Timeouts.CertCheck, s.o.Clock, s.o.Logger); err != nil {
			return err
		}
	}
	var lc net.ListenConfig
	ops, err := lc.Listen(ctx, "tcp", s.o.OpsListen)
	if err != nil {
		return fmt.Errorf("bind ops port: %w", err)
	}
	main, err := lc.Listen(ctx, "tcp", s.o.Listen)
	if err != nil {
		_ = ops.Close()
		return fmt.Errorf("bind REST port: %w", err)
	}
	s.mainBound, s.opsBound = main.Addr(), ops.Addr()
	main = newLimitListener(main, s.o.Limits.MaxConnections, s.m.connections, s.refusal)

	s.mainHTTP = s.newHTTPServer(s.echo)
	s.opsHTTP = s.newHTTPServer(s.opsHandler())
	s.phase.Store(phaseServing)
	s.serve("ops", func() error { return s.opsHTTP.Serve(ops) })
	if certs != nil {
		s.mainHTTP.TLSConfig = certs.tlsConfig()
		s.serve("REST", func() error { return s.mainHTTP.ServeTLS(main, "", "") })
	} else {
		s.serve("REST", func() error { return s.mainHTTP.Serve(main) })
	}
	s.o.Logger.Info("gateway listening", "address", s.mainBound.String(), "ops", s.opsBound.String(), "tls", certs != nil)
	return nil
}

func (s *Server) serve(name string, run func() error) {
	s.serving.Add(1)
	go func() {
		defer s.serving.Done()
		if err := run(); !errors.Is(err, http.ErrServerClosed) {
			s.phase.CompareAndSwap(phaseServing, phaseFailed)
			s.o.Logger.Error("port ended by itself", "port", name, "error", err)
		}
	}()
}

// newHTTPServer bounds what a client can hold before a handler runs. There is no ReadTimeout or WriteTimeout: they would be fixed when
// the request head arrives and end long polls; body.go and respond.go set deadlines per phase instead.
func (s *Server) newHTTPServer(h http.Handler) *http.Server {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         &p,
		MaxHeaderBytes:    s.o.Limits.MaxHeaderBytes,
		ReadHeaderTimeout: s.o.Timeouts.ReadHeader,
		IdleTimeout:       s.o.Timeouts.Idle,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: s.o.Limits.MaxStreams,
			SendPingTimeout:      s.o.Timeouts.Idle,
			PingTimeout:          s.o.Timeouts.Grace,
			WriteByteTimeout:     s.o.Timeouts.Grace,
		},
		BaseContext: func(net.Listener) context.Context { return s.hard },
		ConnContext: connContext,
		ConnState:   connState,
		ErrorLog:    slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelDebug),
	}
}

// Addr is the bound address of the REST port, "" before Start.
func (s *Server) Addr() string { return bound(s, &s.mainBound) }

// OpsAddr is the bound address of the ops port, "" before Start.
func (s *Server) OpsAddr() string { return bound(s, &s.opsBound) }

func bound(s *Server, a *net.Addr) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *a == nil {
		return ""
	}
	return (*a).String()
}

// Stop ends the server: /readyz says 503, no connection is accepted any more, long polls and event streams answer what they have and
// end, and publishes in flight finish. When ctx ends first, what still runs is cut off and the error says so. A second call waits for
// the first and answers the same.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	if s.mu.stopped != nil {
		done := s.mu.stopped
		s.mu.Unlock()
		select {
		case <-done:
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.mu.stopErr
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.stopped = make(chan struct{})
	running := s.mu.started && s.mu.startErr == nil
	if s.cutHard != nil && !running {
		s.cutDrain()
		s.cutHard()
	}
	s.mu.Unlock()

	var err error
	if running {
		err = s.shutdown(ctx)
	}
	s.phase.Store(phaseStopped)
	s.mu.Lock()
	s.mu.stopErr = err
	close(s.mu.stopped)
	s.mu.Unlock()
	return err
}

// shutdown is the order in which a running server ends. The ops port goes last, so that probes see the draining.
func (s *Server) shutdown(ctx context.Context) error {
	s.phase.Store(phaseDraining)
	s.cutDrain()
	err := s.mainHTTP.Shutdown(ctx)
	if err != nil {
		err = fmt.Errorf("requests cut off by the end of the shutdown time: %w", err)
		s.cutHard()
		_ = s.mainHTTP.Close()
	}
	s.cutHard() // also ends a profile being taken, for which the ops port would wait
	if e := s.opsHTTP.Shutdown(ctx); e != nil {
		_ = s.opsHTTP.Close()
	}
	s.serving.Wait()
	s.inFlight.wait() // Close does not wait for handlers; their contexts have ended
	return err
}
