package node

import (
	"context"
	"strings"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/etcd"
)

// openDriver opens the metadata store: the injected one, an embedded etcd member, or a client of a cluster.
func openDriver(ctx context.Context, c Config) (metadata.Driver, error) {
	o := etcd.DriverOptions{Prefix: c.Etcd.Prefix, Clock: c.Clock, Logger: c.Logger}
	switch {
	case c.Driver != nil:
		return c.Driver, nil
	case c.Etcd.Dir != "":
		return etcd.OpenEmbedded(ctx, etcd.ServerConfig{Dir: c.Etcd.Dir, Logger: c.Logger}, o)
	}
	cc := etcd.ClientConfig{CAFile: c.Etcd.CAFile, CertFile: c.Etcd.CertFile, KeyFile: c.Etcd.KeyFile, Username: c.Etcd.Username, Password: c.Etcd.Password}
	for _, e := range c.Etcd.Endpoints {
		if host, ok := strings.CutPrefix(e, "https://"); ok {
			e, cc.TLS = host, true
		}
		cc.Endpoints = append(cc.Endpoints, strings.TrimSuffix(strings.TrimPrefix(e, "http://"), "/"))
	}
	return etcd.Dial(ctx, cc, o)
}
