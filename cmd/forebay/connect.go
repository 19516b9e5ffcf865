package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/forebaymq/forebay/client"
)

// defaultData is where `forebay dev` keeps everything unless told otherwise, relative to the working folder.
const defaultData = ".forebay"

// tokenFileName is the demo tenant's token in the data folder.
const tokenFileName = "token"

// connectFlags are those of every command that talks to a server.
type connectFlags struct {
	Server    string        `help:"Address of the server." default:"http://127.0.0.1:8080" placeholder:"URL"`
	Token     string        `help:"Bearer token. Prefer --token-file: other users of a machine can see command lines." secret:"" placeholder:"JWT"`
	TokenFile string        `help:"File with the bearer token. Without it and --token, the one that forebay dev left in ./.forebay is used, for servers on this machine only." placeholder:"FILE"`
	CAFile    string        `name:"ca-file" help:"PEM file with the certificates to trust, instead of the system's." placeholder:"FILE"`
	Timeout   time.Duration `help:"Longest time of one attempt of a request." default:"1m"`
	RetryFor  time.Duration `help:"How long to go on trying when the server is away or busy." default:"2m"`
}

// client makes a client of the flags.
func (f *connectFlags) client(e *env, opts ...client.Option) (*client.Client, error) {
	token, err := f.token()
	if err != nil {
		return nil, err
	}
	all := []client.Option{
		client.WithToken(token),
		client.WithUserAgent("forebay-cli/" + version),
		client.WithTimeout(f.Timeout),
		client.WithRetry(f.retryPolicy(e)),
	}
	if f.CAFile != "" {
		pem, err := os.ReadFile(f.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read certificates: %s holds no PEM certificate", f.CAFile)
		}
		all = append(all, client.WithTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}))
	}
	c, err := client.New(f.Server, append(all, opts...)...)
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// retryPolicy tries for RetryFor, by pauses of at most 5 s, and tells the user what it waits for.
func (f *connectFlags) retryPolicy(e *env) client.RetryPolicy {
	return client.RetryPolicy{
		Attempts:      1 << 20,
		Max:           5 * time.Second,
		MaxRetryAfter: 30 * time.Second,
		MaxElapsed:    max(f.RetryFor, time.Nanosecond),
		Notify: func(err *client.Error, pause time.Duration) {
			fmt.Fprintf(e.err, "forebay: %v; trying again in %s\n", err, pause.Round(10*time.Millisecond))
		},
	}
}

func (f *connectFlags) token() (string, error) {
	if f.Token != "" {
		return f.Token, nil
	}
	path := f.TokenFile
	if path == "" {
		path = filepath.Join(defaultData, tokenFileName)
		if !onThisMachine(f.Server) {
			return "", nil
		}
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && f.TokenFile == "" {
		return "", nil // the server says that it wants one
	}
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// onThisMachine says whether a server's address is loopback: a token that nobody named must not leave the machine.
func onThisMachine(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
