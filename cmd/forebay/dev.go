package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/internal/node"
)

// demoTenant is the tenant of the embedded fabric.
const demoTenant = "demo"

// demoTopic is what the topic of the greeting and of the README is made by. One partition: so the README can read and commit partition 0.
const demoTopic = `{"partitions":1}`

// demoTokenLife is how long the demo token is good; each start makes a new one.
const demoTokenLife = 365 * 24 * time.Hour

// devClaimTTL is how long the claims of a killed process outlive it. The data folder is locked: nobody else can hold them.
const devClaimTTL = 2 * time.Second

type devFlags struct {
	Data      string `help:"Folder for everything: objects, metadata, the signing key." default:".forebay" placeholder:"DIR"`
	TokenFile string `help:"File that receives the demo tenant's token (default: token in the data folder)." placeholder:"FILE"`
	nodeFlags
	devCompactFlags
}

type devCmd struct{ devFlags }

func (c *devCmd) Run(ctx context.Context, e *env) error {
	logger := c.logger(e.err)
	cfg, err := c.config(logger)
	if err != nil {
		return err
	}
	data, err := filepath.Abs(c.Data)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	unlock, err := lockFolder(data)
	if err != nil {
		return err
	}
	defer unlock()
	key, err := auth.LoadOrCreateDevKey(data)
	if err != nil {
		return err
	}
	token, err := auth.SignDev(key, auth.Claims{Tenant: demoTenant, Subject: demoTenant, Expires: time.Now().Add(demoTokenLife)})
	if err != nil {
		return err
	}
	tokenFile := c.TokenFile
	if tokenFile == "" {
		tokenFile = filepath.Join(data, tokenFileName)
	}
	if tokenFile, err = filepath.Abs(tokenFile); err != nil {
		return fmt.Errorf("token file: %w", err)
	}
	if err := writePrivate(tokenFile, []byte(token+"\n")); err != nil {
		return fmt.Errorf("write token: %w", err)
	}
	cfg.ObjectStore = (&url.URL{Scheme: "file", Path: filepath.Join(data, "objects")}).String()
	cfg.Etcd.Dir = filepath.Join(data, "etcd")
	cfg.Auth.DevKey = key
	cfg.EmbeddedRedis = c.Redis == ""
	if cfg.Compaction, err = c.compaction(); err != nil {
		return err
	}
	cfg.Compaction.Off = c.NoCompaction
	cfg.Compaction.ClaimTTL = devClaimTTL
	return runNode(ctx, cfg, func(n *node.Node) error {
		return c.greet(e, n, data, tokenFile, token)
	})
}

// greet prints where everything is, and two commands to paste.
func (c *devCmd) greet(e *env, n *node.Node, data, tokenFile, token string) error {
	base := c.scheme() + "://" + n.Addr()
	var b bytes.Buffer
	fmt.Fprintf(&b, `
Forebay is ready. Everything is in %s; Ctrl-C stops it, and nothing acknowledged is lost.

  REST API  %s
  ops       http://%s  (/readyz, /metrics)
  token     of tenant %q, also in %s

%s

Create a topic and publish:

  curl -s -w '\n' -X PUT %s/v1/topics/orders -H "Authorization: Bearer $(cat %s)" -H 'Content-Type: application/json' -d '%s' && \
  curl -s -w '\n' %s/v1/topics/orders/records -H "Authorization: Bearer $(cat %s)" -H 'Content-Type: application/json' \
    -d '{"records":[{"key":"o-1","value":{"total":12.50}},{"key":"o-2","value":{"total":7}}]}'

Read it back:

  curl -sN '%s/v1/topics/orders/stream?offset=earliest' -H "Authorization: Bearer $(cat %s)" --max-time 2

Or work it off as a queue, each record leased to one worker at a time:

  curl -s -w '\n' -X PUT %s/v1/topics/orders/subscriptions/billing -H "Authorization: Bearer $(cat %s)" \
    -H 'Content-Type: application/json' -d '{"start":"earliest"}' && \
  curl -s -w '\n' %s/v1/topics/orders/subscriptions/billing/lease -H "Authorization: Bearer $(cat %s)" -H 'Content-Type: application/json' -d '{"max":10}'

`, data, base, n.OpsAddr(), demoTenant, tokenFile, token, base, tokenFile, demoTopic, base, tokenFile, base, tokenFile, base, tokenFile, base, tokenFile)
	_, err := e.out.Write(b.Bytes())
	return err
}

// lockFolder makes a data folder and keeps other processes out of it until unlock is called or this process ends, however it ends.
func lockFolder(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data folder %s is in use by another forebay: stop it first, or name another folder with --data", dir)
		}
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	return func() { _ = f.Close() }, nil
}

// writePrivate replaces a file that only its owner may read, so that nobody sees half of it.
func writePrivate(path string, body []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(body)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
