package node

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/compactor"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/faults"
)

// Config describes a node. The zero value of a field means its default; what is required is said.
type Config struct {
	NodeID    string // names the node in keys and logs; default the host's name. Need not be unique, but should be
	Region    string // of the fabric; "" is a fabric without one
	Version   string // shown to operators; default "dev"
	Listen    string // host:port of the REST API; default 127.0.0.1:8080; port 0 = any
	OpsListen string // host:port for operators; default 127.0.0.1:8081; port 0 = any

	TLSCertFile, TLSKeyFile string // PEM; both or none

	ObjectStore string // URL, such as file:///dir; required unless Store is set
	StoreFaults string // faults to inject, for tests and drills: see objectstore/faults; "" = none
	Shards      int    // of a new fabric; 0 = metadata.DefaultShards

	Etcd Etcd // required unless Driver is set
	Auth Auth // required

	// Redis keeps the leases of work queues: the URL of one, see package leases/store. "" and not EmbeddedRedis: there are no work queues on this node.
	Redis         string
	EmbeddedRedis bool // a Redis within this process instead

	Linger         time.Duration // longest wait of a record for company; 0 = ingest's default, 50 ms
	SegmentBytes   int           // size at which a segment is sealed; 0 = ingest's default, 8 MiB
	MemoryBytes    int64         // accepted and unanswered records, all tenants; 0 = ingest's default, 256 MiB
	TenantBytes    int64         // the same of one tenant; 0 = half of MemoryBytes
	Compaction     Compaction    // merging, retention classes, garbage
	CacheBytes     int64         // memory for reads; 0 = fetch's default, 256 MiB
	OTLPEndpoint   string        // URL of an OpenTelemetry collector (OTLP over HTTP) for spans; "" = no spans
	DrainTimeout   time.Duration // how long Stop waits for requests in flight where its ctx allows; default 30 s
	StartupTimeout time.Duration // how long Start waits for etcd and the log; default 1 min

	// What tests replace.
	Driver    metadata.Driver      // instead of Etcd; the node does not close it
	Store     objectstore.Store    // instead of ObjectStore, under the same wrappers; the node does not close it
	Clock     clockwork.Clock      // default: the real one
	Random    io.Reader            // entropy of IDs, safe for concurrent use; default: the system's
	Logger    *slog.Logger         // default: discards
	Registry  *prometheus.Registry // default: the node's own
	Housekeep Housekeeping         // how often the metadata log tidies up
}

// Compaction says what the node's compactor does; see compactor.Options for the defaults.
type Compaction struct {
	Off     bool // this node neither merges nor collects
	Policy  compactor.Policy
	Collect compactor.Collection
	Workers int
	Every   time.Duration
	// CleanEvery is how often partitions are looked at that are compacted by key.
	CleanEvery time.Duration
	// RetentionEvery is how often retention is enforced, by whole batches; within merged ones it is enforced half as often.
	RetentionEvery time.Duration
	// ClaimTTL is after how long the work of a node that died goes to another.
	ClaimTTL time.Duration
}

// Housekeeping paces snapshots of the metadata log; see metadata.Options for the defaults.
type Housekeeping struct {
	Snapshot metadata.SnapshotPolicy
	Every    time.Duration
	Off      bool
}

// Etcd says where the metadata store is: embedded in this process, or at endpoints.
type Etcd struct {
	Dir       string   // data folder of an embedded member; "" = Endpoints
	Endpoints []string // host:port or URLs

	CAFile, CertFile, KeyFile string // PEM; for TLS to the endpoints
	Username, Password        string
	Prefix                    string // of all keys; "" = the driver's default. Fabrics that share an etcd differ in it
}

// Auth says whose tokens are taken. At least one of DevKey and JWTKeyFiles is required.
type Auth struct {
	DevKey      []byte   // HS256 key of development tokens
	JWTKeyFiles []string // PEM files of public keys
	JWTIssuer   string   // exact "iss"; required with JWTKeyFiles
	JWTAudience []string // accepted members of "aud"; required with JWTKeyFiles
	TenantClaim string   // claim that holds the tenant; default "tenant"
}

var notInNodeID = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// WithDefaults returns c with every zero field that has a default of its own set to it. Those of the packages below are left to them.
func (c Config) WithDefaults() Config {
	if c.NodeID == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "node"
		}
		c.NodeID = notInNodeID.ReplaceAllString(host, "-")
		c.NodeID = c.NodeID[:min(len(c.NodeID), 64)]
	}
	for _, d := range []struct {
		field *string
		value string
	}{{&c.Version, "dev"}, {&c.Listen, "127.0.0.1:8080"}, {&c.OpsListen, "127.0.0.1:8081"}} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 30 * time.Second
	}
	if c.StartupTimeout == 0 {
		c.StartupTimeout = time.Minute
	}
	if c.Clock == nil {
		c.Clock = clockwork.NewRealClock()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	return c
}

// Validate reports every fault by field. It expects the defaults to be set.
func (c Config) Validate() error {
	v := &findings{}
	v.check(!notInNodeID.MatchString(c.NodeID) && c.NodeID != "" && len(c.NodeID) <= 64, "node-id", "%q: want 1 to 64 of A-Z a-z 0-9 . _ -", c.NodeID)
	v.check(c.Region == "" || api.ValidName(c.Region), "region", "%q is not a valid name", c.Region)
	for field, addr := range map[string]string{"listen": c.Listen, "ops-listen": c.OpsListen} {
		_, _, err := net.SplitHostPort(addr)
		v.check(err == nil, field, "%q is not host:port", addr)
	}
	v.check((c.TLSCertFile == "") == (c.TLSKeyFile == ""), "tls-cert", "a certificate and a key belong together")
	c.validateStorage(v)
	c.validateRedis(v)
	v.check(c.Linger >= 0 && c.Linger <= time.Minute, "linger", "%s: want at most 1m", c.Linger)
	v.check(c.SegmentBytes >= 0 && c.SegmentBytes <= 1<<30, "segment-bytes", "%d: want at most 1 GiB", c.SegmentBytes)
	v.check(c.MemoryBytes >= 0, "memory", "must not be negative")
	v.check(c.TenantBytes >= 0, "tenant-memory", "must not be negative")
	v.check(c.CacheBytes >= 0, "cache-bytes", "must not be negative")
	v.check(c.DrainTimeout > 0, "drain-timeout", "must be above 0")
	v.check(c.StartupTimeout > 0, "startup-timeout", "must be above 0")
	if c.OTLPEndpoint != "" {
		u, err := url.Parse(c.OTLPEndpoint)
		v.check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "otlp-endpoint", "%q is not an http:// or https:// URL", c.OTLPEndpoint)
	}
	c.Auth.validate(v)
	return v.err()
}

// validateStorage looks at what the lower half of a node needs.
func (c Config) validateStorage(v *findings) {
	v.check(c.Store != nil || c.ObjectStore != "", "object-store", "is required, such as file:///var/lib/forebay")
	if _, err := faults.Parse(c.StoreFaults); err != nil {
		v.check(false, "store-faults", "%v", err)
	}
	v.check(c.Shards >= 0 && c.Shards <= metadata.MaxShards, "shards", "%d: want 1 to %d", c.Shards, metadata.MaxShards)
	if c.Driver == nil {
		c.Etcd.validate(v)
	}
}

func (e Etcd) validate(v *findings) {
	v.check(e.Dir != "" || len(e.Endpoints) > 0, "etcd", "is required: host:port of each member")
	v.check(e.Dir == "" || len(e.Endpoints) == 0, "etcd", "is embedded, or at endpoints, not both")
	v.check(!slices.Contains(e.Endpoints, ""), "etcd", "an endpoint is empty")
	v.check((e.CertFile == "") == (e.KeyFile == ""), "etcd-cert", "a certificate and a key belong together")
	v.check((e.Username == "") == (e.Password == ""), "etcd-user", "a user and a password belong together")
}

func (a Auth) validate(v *findings) {
	v.check(len(a.DevKey) > 0 || len(a.JWTKeyFiles) > 0, "jwt-key", "is required: without a key no token can be verified")
	if len(a.JWTKeyFiles) > 0 {
		v.check(a.JWTIssuer != "", "jwt-issuer", "is required with jwt-key")
		v.check(len(a.JWTAudience) > 0 && !slices.Contains(a.JWTAudience, ""), "jwt-audience", "is required with jwt-key, and must not be empty: tokens made for other services would be accepted")
	}
}

// findings collects what is wrong.
type findings struct{ errs []error }

func (f *findings) check(ok bool, field, format string, args ...any) {
	if !ok {
		f.errs = append(f.errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
}

func (f *findings) err() error { return errors.Join(f.errs...) }
