package main

import (
	"io"
	"log/slog"
	"time"

	"github.com/forebaymq/forebay/internal/config"
	"github.com/forebaymq/forebay/internal/node"
)

// nodeFlags are the settings that dev and serve share.
type nodeFlags struct {
	Listen       string        `help:"Address of the REST API; port 0 = any." default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	OpsListen    string        `help:"Address for operators: /healthz, /readyz, /metrics." default:"127.0.0.1:8081" placeholder:"HOST:PORT"`
	Redis        string        `help:"Redis of the work queues, 6.2 or newer: redis://user:password@host:port/db, redis+sentinel://host,host/name or redis+cluster://host,host; rediss for TLS (?ca_file=, cert_file=, key_file=). Not set, forebay dev has one of its own and forebay serve no work queues." placeholder:"URL" secret:"url"`
	NodeID       string        `name:"node-id" help:"Name of this node (default: the host's)." placeholder:"NAME"`
	Linger       time.Duration `help:"How long a record waits for company at most before its segment is written." default:"50ms"`
	SegmentBytes config.Bytes  `help:"Size at which a segment is written without waiting." default:"8MiB"`
	Memory       config.Bytes  `help:"Most bytes of records accepted and not yet acknowledged; more get 503." default:"256MiB"`
	TenantMemory config.Bytes  `help:"The same for one tenant; 0 = half of --memory." default:"0B"`
	CacheBytes   config.Bytes  `help:"Memory for the read caches." default:"256MiB"`
	NoCompaction bool          `help:"Neither merge, compact nor collect on this node; others or forebay compact must."`
	TLSCert      string        `name:"tls-cert" help:"PEM file of the certificate; read again when it changes." placeholder:"FILE"`
	TLSKey       string        `name:"tls-key" help:"PEM file of its key." placeholder:"FILE"`
	OTLPEndpoint string        `name:"otlp-endpoint" help:"OpenTelemetry collector for spans (OTLP over HTTP), such as http://localhost:4318." placeholder:"URL"`
	DrainTimeout time.Duration `help:"How long a stop waits for requests in flight." default:"30s"`
	LogLevel     slog.Level    `help:"debug, info, warn or error." default:"info" placeholder:"LEVEL"`
	LogFormat    string        `help:"text or json, on standard error." enum:"text,json" default:"text"`
	StoreFaults  string        `help:"Make the object store fail, as in seed=1;put:every=3:error=503." hidden:"" placeholder:"SPEC"`
}

func (f *nodeFlags) logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: f.LogLevel}
	if f.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

func (f *nodeFlags) config(logger *slog.Logger) (node.Config, error) {
	for name, b := range map[string]config.Bytes{"segment-bytes": f.SegmentBytes, "memory": f.Memory, "cache-bytes": f.CacheBytes} {
		if b < 1 {
			return node.Config{}, usagef("--%s must be above 0", name)
		}
	}
	if f.Linger < time.Millisecond {
		return node.Config{}, usagef("--linger %s: want at least 1ms", f.Linger)
	}
	return node.Config{
		NodeID: f.NodeID, Version: version, Redis: f.Redis, Listen: f.Listen, OpsListen: f.OpsListen, TLSCertFile: f.TLSCert, TLSKeyFile: f.TLSKey,
		StoreFaults: f.StoreFaults, Linger: f.Linger, SegmentBytes: int(f.SegmentBytes), MemoryBytes: int64(f.Memory), TenantBytes: int64(f.TenantMemory),
		CacheBytes: int64(f.CacheBytes), OTLPEndpoint: f.OTLPEndpoint, DrainTimeout: f.DrainTimeout, Logger: logger,
	}, nil
}

// scheme is that of the REST API's address.
func (f *nodeFlags) scheme() string {
	if f.TLSCert != "" {
		return "https"
	}
	return "http"
}
