package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/forebaymq/forebay/internal/node"
)

// compactCmd runs the compactor alone, beside nodes that run with --no-compaction or in addition to theirs: shards are claimed.
type compactCmd struct {
	storageFlags
	compactFlags
	NodeID    string     `name:"node-id" help:"Name of this process (default: the host's)." placeholder:"NAME"`
	OpsListen string     `help:"Address for operators: /healthz, /readyz, /metrics." default:"127.0.0.1:8082" placeholder:"HOST:PORT"`
	LogLevel  slog.Level `help:"debug, info, warn or error." default:"info" placeholder:"LEVEL"`
	LogFormat string     `help:"text or json, on standard error." enum:"text,json" default:"text"`
}

func (c *compactCmd) Run(ctx context.Context, e *env) error {
	logger := (&nodeFlags{LogLevel: c.LogLevel, LogFormat: c.LogFormat}).logger(e.err)
	cfg := node.Config{NodeID: c.NodeID, Version: version, OpsListen: c.OpsListen, Logger: logger}
	c.storageFlags.apply(&cfg)
	var err error
	if cfg.Compaction, err = c.compaction(); err != nil {
		return err
	}
	signalled, stop := withSignals(ctx)
	defer stop()
	return node.RunCompactor(signalled, cfg, func(ops string) error {
		_, err := fmt.Fprintf(e.out, "ready: compactor, ops http://%s\n", ops)
		return err
	})
}

// storageFlags say where the storage of a fabric is.
type storageFlags struct {
	ObjectStore  string   `help:"Where segments are kept: file:///dir, s3://bucket/prefix?region=NAME, minio://host:port/bucket, mem: (tests)." placeholder:"URL" required:""`
	Etcd         []string `help:"Members of the etcd quorum, separated by commas." placeholder:"HOST:PORT" required:""`
	EtcdPrefix   string   `help:"Prefix of all keys in etcd; fabrics that share an etcd differ in it." placeholder:"PREFIX"`
	EtcdCA       string   `name:"etcd-ca" help:"PEM file of the authority of etcd's certificates." placeholder:"FILE"`
	EtcdCert     string   `help:"PEM file of this node's certificate for etcd." placeholder:"FILE"`
	EtcdKey      string   `help:"PEM file of its key." placeholder:"FILE"`
	EtcdUser     string   `help:"User name for etcd." placeholder:"NAME"`
	EtcdPassword string   `help:"Password for etcd; set it by the environment." placeholder:"PASSWORD" secret:""`
	Region       string   `help:"Region of this fabric." placeholder:"NAME"`
	Shards       int      `help:"Shards of the metadata log, when the fabric is new; 0 = 16." default:"0"`
}

func (f *storageFlags) apply(c *node.Config) {
	c.ObjectStore, c.Region, c.Shards = f.ObjectStore, f.Region, f.Shards
	c.Etcd = node.Etcd{
		Endpoints: f.Etcd, Prefix: f.EtcdPrefix, CAFile: f.EtcdCA, CertFile: f.EtcdCert, KeyFile: f.EtcdKey, Username: f.EtcdUser, Password: f.EtcdPassword,
	}
}
