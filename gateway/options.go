package gateway

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/ingest"
)

// RecordTrace says when the trace context of a publish request is kept in the headers of its records.
type RecordTrace string

// The modes of RecordTrace.
const (
	RecordTraceCarried RecordTrace = "carried" // the request carried a traceparent (default)
	RecordTraceAlways  RecordTrace = "always"  // also where this node started the trace
	RecordTraceNever   RecordTrace = "never"
)

// Options configures a Server. The zero value of a field means its default; the fields without one are required.
type Options struct {
	Listen    string // host:port of the REST API; default 127.0.0.1:8080, port 0 = any
	OpsListen string // host:port for operators; default 127.0.0.1:8081, port 0 = any

	// TLSCertFile and TLSKeyFile are PEM files; both or none. They are read again when they change. TLS 1.2 and later.
	TLSCertFile, TLSKeyFile string

	Authenticator auth.Authenticator // required
	Authorizer    auth.Authorizer    // required
	Appender      ingest.Appender    // required
	Reader        fetch.Reader       // required
	Topics        Topics             // required
	Producers     Producers          // required
	Health        Health             // required
	Queues        Queues             // nil: every route of subscriptions answers LEASES_UNAVAILABLE
	Groups        Groups             // nil: every route of groups answers LEASES_UNAVAILABLE

	Region      string // of this fabric; a topic that is resident elsewhere is refused
	Version     string // shown by /openapi.json and /debug/state
	RecordTrace RecordTrace

	Limits   Limits
	Timeouts Timeouts

	Clock          clockwork.Clock
	Random         io.Reader // entropy of request IDs; default crypto/rand; read by one goroutine at a time
	Logger         *slog.Logger
	Registerer     prometheus.Registerer // default: a registry of the server's own
	Gatherer       prometheus.Gatherer   // what /metrics shows; default: the same registry
	TracerProvider trace.TracerProvider  // nil = no spans
	Debug          map[string]func() any // further JSON documents of the ops port, by name below /debug/; must be safe for concurrent use
	DebugState     func() any            // what /debug/state shows beside the status; must be safe for concurrent use
	// Degraded says, by name, what does not work for a reason although the node is ready; /readyz shows it. nil, or nil answers: nothing. It must
	// be safe for concurrent use and quick, and its reasons must not hold anything that is not for everybody.
	Degraded func() map[string]string
}

// Limits bounds what clients can make a node hold. Zero fields mean the defaults.
type Limits struct {
	MaxConnections     int   // open connections of the REST port; more wait in the listen queue. Default 10,000
	MaxRequests        int   // requests in flight, long polls and streams included; more get OVERLOADED. Default 20,000
	MaxStreams         int   // concurrent HTTP/2 streams per connection. Default 250
	MaxHeaderBytes     int   // of a request head. Default 64 KiB
	MaxBodyBytes       int64 // request bodies in memory, decoded, all together; more get OVERLOADED. Default 512 MiB
	MaxRequestBytes    int64 // one decoded body. Default and most api.MaxRequestBytes
	MaxAnswerBytes     int64 // answers being sent, all together, small ones not counted; more get OVERLOADED. Default 256 MiB
	MaxFollowed        int   // partitions followed by all event streams together; more get OVERLOADED. Default 16,384
	MaxStreamPartition int   // partitions of one event stream. Default 1,024
}

// Timeouts of the phases of a request. Zero fields mean the defaults. A minimum rate replaces a deadline where the size is free.
type Timeouts struct {
	ReadHeader time.Duration // default 10 s
	Grace      time.Duration // a body may take this long, and 1 s more for each MinRate bytes of it. The same when writing. Default 10 s
	MinRate    int64         // bytes per second. Default 16 KiB
	Idle       time.Duration // a connection without a request. Default 120 s
	Request    time.Duration // a publish or a change of metadata, once its body is there. Default 15 s
	Heartbeat  time.Duration // between comments on a silent event stream. Default 15 s
	Retry      time.Duration // what an event stream tells its client to wait before it comes back. Default 2 s
	CertCheck  time.Duration // how often the certificate files are looked at. Default 10 s
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// WithDefaults returns o with every zero field that has a default set to it.
func (o Options) WithDefaults() Options {
	def(&o.Listen, "127.0.0.1:8080")
	def(&o.OpsListen, "127.0.0.1:8081")
	def(&o.Version, "dev")
	def(&o.RecordTrace, RecordTraceCarried)

	def(&o.Limits.MaxConnections, 10_000)
	def(&o.Limits.MaxRequests, 20_000)
	def(&o.Limits.MaxStreams, 250)
	def(&o.Limits.MaxHeaderBytes, 64<<10)
	def(&o.Limits.MaxBodyBytes, 512<<20)
	def(&o.Limits.MaxAnswerBytes, 256<<20)
	def(&o.Limits.MaxRequestBytes, api.MaxRequestBytes)
	def(&o.Limits.MaxFollowed, 16_384)
	def(&o.Limits.MaxStreamPartition, 1024)

	def(&o.Timeouts.ReadHeader, 10*time.Second)
	def(&o.Timeouts.Grace, 10*time.Second)
	def(&o.Timeouts.MinRate, 16<<10)
	def(&o.Timeouts.Idle, 120*time.Second)
	def(&o.Timeouts.Request, 15*time.Second)
	def(&o.Timeouts.Heartbeat, 15*time.Second)
	def(&o.Timeouts.Retry, 2*time.Second)
	def(&o.Timeouts.CertCheck, 10*time.Second)

	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil || o.Gatherer == nil {
		own := prometheus.NewRegistry()
		if o.Registerer == nil {
			o.Registerer = own
		}
		if o.Gatherer == nil {
			o.Gatherer = own
			if g, ok := o.Registerer.(prometheus.Gatherer); ok {
				o.Gatherer = g
			}
		}
	}
	return o
}

// Validate reports every fault of o, by field. It expects the defaults to be set.
func (o Options) Validate() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("gateway.Options.%s: %s", field, fmt.Sprintf(format, args...)))
	}
	for _, a := range []struct{ field, addr string }{{"Listen", o.Listen}, {"OpsListen", o.OpsListen}} {
		if _, _, err := net.SplitHostPort(a.addr); err != nil {
			bad(a.field, "%q is not host:port", a.addr)
		}
	}
	if (o.TLSCertFile == "") != (o.TLSKeyFile == "") {
		bad("TLSCertFile", "a certificate and a key belong together: set TLSKeyFile as well, or none of them")
	}
	for _, r := range []struct {
		field   string
		missing bool
	}{
		{"Authenticator", o.Authenticator == nil}, {"Authorizer", o.Authorizer == nil}, {"Appender", o.Appender == nil},
		{"Reader", o.Reader == nil}, {"Topics", o.Topics == nil}, {"Producers", o.Producers == nil}, {"Health", o.Health == nil},
	} {
		if r.missing {
			bad(r.field, "is required")
		}
	}
	switch o.RecordTrace {
	case RecordTraceCarried, RecordTraceAlways, RecordTraceNever:
	default:
		bad("RecordTrace", "%q: use carried, always or never", o.RecordTrace)
	}
	for _, l := range []struct {
		field string
		v     int64
		most  int64 // 0 = none
	}{
		{"Limits.MaxConnections", int64(o.Limits.MaxConnections), 0},
		{"Limits.MaxRequests", int64(o.Limits.MaxRequests), 0},
		{"Limits.MaxStreams", int64(o.Limits.MaxStreams), 1 << 20},
		{"Limits.MaxHeaderBytes", int64(o.Limits.MaxHeaderBytes), 16 << 20},
		{"Limits.MaxBodyBytes", o.Limits.MaxBodyBytes, 0},
		{"Limits.MaxAnswerBytes", o.Limits.MaxAnswerBytes, 0},
		{"Limits.MaxRequestBytes", o.Limits.MaxRequestBytes, api.MaxRequestBytes},
		{"Limits.MaxFollowed", int64(o.Limits.MaxFollowed), 0},
		{"Limits.MaxStreamPartition", int64(o.Limits.MaxStreamPartition), api.MaxPartitions},
		{"Timeouts.MinRate", o.Timeouts.MinRate, 0},
	} {
		switch {
		case l.v <= 0:
			bad(l.field, "%d: must be positive", l.v)
		case l.most > 0 && l.v > l.most:
			bad(l.field, "%d: must be at most %d", l.v, l.most)
		}
	}
	if o.Limits.MaxBodyBytes < o.Limits.MaxRequestBytes {
		bad("Limits.MaxBodyBytes", "%d: one request of Limits.MaxRequestBytes (%d) must fit", o.Limits.MaxBodyBytes, o.Limits.MaxRequestBytes)
	}
	for _, t := range []struct {
		field string
		v     time.Duration
	}{
		{"ReadHeader", o.Timeouts.ReadHeader}, {"Grace", o.Timeouts.Grace}, {"Idle", o.Timeouts.Idle}, {"Request", o.Timeouts.Request},
		{"Heartbeat", o.Timeouts.Heartbeat}, {"Retry", o.Timeouts.Retry}, {"CertCheck", o.Timeouts.CertCheck},
	} {
		if t.v <= 0 {
			bad("Timeouts."+t.field, "%s: must be positive", t.v)
		}
	}
	return errors.Join(errs...)
}
