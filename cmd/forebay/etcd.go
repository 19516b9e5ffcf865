package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/forebaymq/forebay/metadata/etcd"
)

// etcdCmd runs one member. It is meant for trying a cluster on one machine and for small installations; an etcd of one's own, with TLS
// between its members, is as good for forebay serve.
type etcdCmd struct {
	Name           string     `help:"Name of this member." required:"" placeholder:"NAME"`
	Data           string     `help:"Folder for its data." required:"" placeholder:"DIR"`
	ListenClient   string     `help:"Address for clients." default:"127.0.0.1:2379" placeholder:"IP:PORT"`
	ListenPeer     string     `help:"Address for the other members." default:"127.0.0.1:2380" placeholder:"IP:PORT"`
	InitialCluster []string   `help:"Names and peer addresses of all members, this one included, separated by commas. Used by the first start only; without, a cluster of one." placeholder:"NAME=IP:PORT"`
	ClusterToken   string     `help:"Keeps clusters apart that meet by mistake." default:"forebay" placeholder:"TOKEN"`
	LogLevel       slog.Level `help:"debug, info, warn or error." default:"warn" placeholder:"LEVEL"`
	LogFormat      string     `help:"text or json, on standard error." enum:"text,json" default:"text"`
}

func (c *etcdCmd) Run(ctx context.Context, e *env) error {
	logger := (&nodeFlags{LogLevel: c.LogLevel, LogFormat: c.LogFormat}).logger(e.err)
	cfg := etcd.ServerConfig{
		Dir: c.Data, Name: c.Name, ListenClient: address(c.ListenClient), ListenPeer: address(c.ListenPeer), Token: c.ClusterToken, Logger: logger,
	}
	for _, m := range c.InitialCluster {
		name, addr, ok := strings.Cut(m, "=")
		if !ok || name == "" || addr == "" {
			return usagef("--initial-cluster %q: want NAME=IP:PORT", m)
		}
		if cfg.Cluster == nil {
			cfg.Cluster = map[string]string{}
		}
		cfg.Cluster[name] = address(addr)
	}
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return usageError{err}
	}
	signalled, stop := withSignals(ctx)
	defer stop()
	s, err := etcd.StartServer(signalled, cfg)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(e.out, "ready: etcd member %s, clients %s\n", c.Name, strings.Join(s.Endpoints(), ",")); err != nil {
		return errors.Join(err, s.Close())
	}
	select {
	case <-signalled.Done():
	case <-s.Stopped():
		return errors.Join(errors.New("the etcd member ended by itself"), s.Close())
	}
	return s.Close()
}

// address takes HOST:PORT, also as a URL.
func address(s string) string { return strings.TrimSuffix(strings.TrimPrefix(s, "http://"), "/") }
