package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"google.golang.org/grpc"
)

const (
	defaultName  = "forebay"
	defaultQuota = 2 << 30
)

// ServerConfig configures one etcd member in this process. Dir is required; the zero value of the rest makes a cluster of one that listens
// nowhere and is reached by Server.Driver only.
type ServerConfig struct {
	Dir  string // data; kept over restarts. fsync is always on
	Name string // of the member; default "forebay"
	// ListenClient is the HOST:PORT for clients; port 0 takes a free one; "" listens to none.
	ListenClient string
	// ListenPeer is the HOST:PORT for the other members; "" for a cluster of one.
	ListenPeer string
	// Cluster maps the names of all members to their peer HOST:PORT, this one's included; nil for a cluster of one. Used by the first start only.
	Cluster map[string]string
	Token   string // keeps clusters apart that meet by mistake; default "forebay"

	Heartbeat time.Duration // between leader and followers; default 10 ms alone, 100 ms in a cluster
	Election  time.Duration // silence after which a follower stands; default 10 heartbeats
	Quota     int64         // bytes of the backend; default 2 GiB
	Logger    *slog.Logger  // default: discards

	bcryptCost uint // of etcd's passwords; tests lower it
}

// WithDefaults fills in what is zero.
func (c ServerConfig) WithDefaults() ServerConfig {
	if c.Name == "" {
		c.Name = defaultName
	}
	if c.Token == "" {
		c.Token = "forebay"
	}
	if c.Heartbeat == 0 {
		// Alone there is nobody to wait for: short ticks only make the first election, and so the start, fast.
		c.Heartbeat = 10 * time.Millisecond
		if len(c.Cluster) > 1 {
			c.Heartbeat = 100 * time.Millisecond
		}
	}
	if c.Election == 0 {
		c.Election = 10 * c.Heartbeat
	}
	if c.Quota == 0 {
		c.Quota = defaultQuota
	}
	if c.Logger == nil {
		c.Logger = discard()
	}
	return c
}

// Validate reports every fault by field.
func (c ServerConfig) Validate() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("etcd.ServerConfig.%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if c.Dir == "" {
		bad("Dir", "is required")
	}
	for field, addr := range map[string]string{"ListenClient": c.ListenClient, "ListenPeer": c.ListenPeer} {
		if addr == "" {
			continue
		}
		if host, _, err := net.SplitHostPort(addr); err != nil || net.ParseIP(host) == nil {
			bad(field, "%q is not IP:PORT", addr)
		}
	}
	if len(c.Cluster) > 0 && c.Cluster[c.Name] == "" {
		bad("Cluster", "this member, %q, is not in it", c.Name)
	}
	if len(c.Cluster) > 1 && c.ListenPeer == "" {
		bad("ListenPeer", "is required in a cluster")
	}
	if c.Election < 5*c.Heartbeat {
		bad("Election", "%s is less than 5 heartbeats of %s", c.Election, c.Heartbeat)
	}
	if c.Quota < 0 {
		bad("Quota", "is negative")
	}
	return errors.Join(errs...)
}

// Server is one etcd member in this process.
type Server struct {
	e    *embed.Etcd
	once sync.Once
	grpc struct { // what listens to clients; etcd makes it in a goroutine of its own
		sync.Mutex
		servers []*grpc.Server
	}
}

// StartServer starts a member, and returns when it serves: a member of a cluster only once there is a quorum. It gives up when ctx ends.
func StartServer(ctx context.Context, c ServerConfig) (*Server, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &Server{}
	cfg := c.embedConfig()
	cfg.ServiceRegister = func(g *grpc.Server) {
		s.grpc.Lock()
		defer s.grpc.Unlock()
		s.grpc.servers = append(s.grpc.servers, g)
	}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	s.e = e
	select {
	case <-e.Server.ReadyNotify():
		return s, nil
	case err = <-e.Err():
	case <-e.Server.StopNotify():
		err = errors.New("it stopped")
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(fmt.Errorf("start etcd: not ready: %w", err), s.Close())
}

func (c ServerConfig) embedConfig() *embed.Config {
	e := embed.NewConfig()
	e.Name, e.Dir, e.InitialClusterToken = c.Name, c.Dir, c.Token
	e.TickMs, e.ElectionMs = uint(c.Heartbeat.Milliseconds()), uint(c.Election.Milliseconds())
	e.QuotaBackendBytes = c.Quota
	e.Logger, e.ZapLoggerBuilder = "zap", embed.NewZapLoggerBuilder(zapTo(c.Logger))
	e.Metrics = "basic"
	if c.bcryptCost != 0 {
		e.BcryptCost = c.bcryptCost
	}
	e.WatchProgressNotifyInterval = 5 * time.Second
	// A commit of many partitions, and the snapshot's deletions, are large on purpose.
	e.WarningApplyDuration = 500 * time.Millisecond
	e.WarningUnaryRequestDuration = time.Second
	e.ListenClientUrls, e.AdvertiseClientUrls = urls(c.ListenClient), urls(c.ListenClient)
	e.ListenPeerUrls, e.AdvertisePeerUrls = urls(c.ListenPeer), urls(c.ListenPeer)
	if len(c.Cluster) == 0 {
		// The address is a name only: nobody dials the only member.
		self := c.ListenPeer
		if self == "" {
			self = "127.0.0.1:2380"
		}
		c.Cluster = map[string]string{c.Name: self}
	}
	e.AdvertisePeerUrls = urls(c.Cluster[c.Name])
	var members []string
	for _, name := range slices.Sorted(maps.Keys(c.Cluster)) {
		members = append(members, name+"=http://"+c.Cluster[name])
	}
	e.InitialCluster = strings.Join(members, ",")
	return e
}

func urls(addr string) []url.URL {
	if addr == "" {
		return []url.URL{}
	}
	return []url.URL{{Scheme: "http", Host: addr}}
}

// Endpoints are the HOST:PORT addresses on which it listens to clients.
func (s *Server) Endpoints() []string {
	var out []string
	for _, l := range s.e.Clients {
		out = append(out, l.Addr().String())
	}
	return out
}

// Stopped is closed when the member has ended, by Close or by a fault of its own.
func (s *Server) Stopped() <-chan struct{} { return s.e.Server.StopNotify() }

// Driver makes a driver that calls the member directly, without a connection. Close it before the server.
func (s *Server) Driver(ctx context.Context, o DriverOptions) *Driver {
	c := v3client.New(s.e.Server)
	return newDriver(ctx, c, o, func() error { return closeLocal(c) })
}

// closeLocal closes a client without a connection, which answers with the end of its own context.
func closeLocal(c *clientv3.Client) error {
	if err := c.Close(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Close stops the member. Its data stay.
func (s *Server) Close() error {
	s.once.Do(func() {
		// The clients first: etcd would wait seconds for their watches to end. They go on with another member.
		s.grpc.Lock()
		servers := s.grpc.servers
		s.grpc.Unlock()
		for _, g := range servers {
			g.Stop()
		}
		s.e.Close()
	})
	return nil
}

// OpenEmbedded starts a member and a driver on it, which owns it.
func OpenEmbedded(ctx context.Context, c ServerConfig, o DriverOptions) (*Driver, error) {
	s, err := StartServer(ctx, c)
	if err != nil {
		return nil, err
	}
	client := v3client.New(s.e.Server)
	return newDriver(ctx, client, o, func() error { return errors.Join(closeLocal(client), s.Close()) }), nil
}
