package main

import (
	"context"
	"fmt"
	"os"

	"github.com/forebaymq/forebay/internal/node"
)

type serveFlags struct {
	nodeFlags
	storageFlags
	compactFlags
	JWTKey      []string `name:"jwt-key" help:"PEM files of public keys that sign tokens, separated by commas." placeholder:"FILE"`
	JWTIssuer   string   `name:"jwt-issuer" help:"Issuer (iss) of those tokens." placeholder:"ISS"`
	JWTAudience []string `name:"jwt-audience" help:"Accepted audiences (aud), separated by commas." placeholder:"AUD"`
	JWTTenant   string   `name:"jwt-tenant-claim" help:"Claim that holds the tenant." default:"tenant"`
	DevKey      string   `help:"File of a development key: accept HS256 tokens of forebay token. Not for production." placeholder:"FILE"`
}

type serveCmd struct{ serveFlags }

func (c *serveCmd) Run(ctx context.Context, e *env) error {
	logger := c.logger(e.err)
	cfg, err := c.config(logger)
	if err != nil {
		return err
	}
	if c.Redis == "" {
		logger.Warn("no --redis: work queues are off on this node")
	}
	c.storageFlags.apply(&cfg)
	if cfg.Compaction, err = c.compaction(); err != nil {
		return err
	}
	cfg.Compaction.Off = c.NoCompaction
	cfg.Auth = node.Auth{JWTKeyFiles: c.JWTKey, JWTIssuer: c.JWTIssuer, JWTAudience: c.JWTAudience, TenantClaim: c.JWTTenant}
	if c.DevKey != "" {
		if cfg.Auth.DevKey, err = readDevKey(c.DevKey); err != nil {
			return err
		}
		logger.Warn("development tokens are accepted: whoever has the key file can be any tenant", "file", c.DevKey)
	}
	return runNode(ctx, cfg, func(n *node.Node) error {
		_, err := fmt.Fprintf(e.out, "ready: REST API %s://%s, ops http://%s\n", c.scheme(), n.Addr(), n.OpsAddr())
		return err
	})
}

// minDevKeyBytes is what HS256 needs to be no weaker than its hash.
const minDevKeyBytes = 32

func readDevKey(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read development key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("read development key: %s must be readable by its owner only (chmod 600)", path)
	}
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read development key: %w", err)
	}
	if len(key) < minDevKeyBytes {
		return nil, fmt.Errorf("read development key: %s has %d bytes, want at least %d", path, len(key), minDevKeyBytes)
	}
	return key, nil
}
