package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// ClientConfig says how to reach an etcd cluster. Endpoints are required.
type ClientConfig struct {
	Endpoints []string // HOST:PORT of the members

	CAFile   string // PEM; makes the connection TLS, verified against it
	CertFile string // PEM; the client's certificate, with KeyFile
	KeyFile  string
	TLS      bool // TLS with the system's roots, where there is no CAFile

	Username, Password string        // of etcd's own authentication
	DialTimeout        time.Duration // default 5 s
}

// Validate reports every fault by field.
func (c ClientConfig) Validate() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("etcd.ClientConfig.%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if len(c.Endpoints) == 0 {
		bad("Endpoints", "are required")
	}
	for _, e := range c.Endpoints {
		if _, _, err := net.SplitHostPort(e); err != nil {
			bad("Endpoints", "%q is not HOST:PORT", e)
		}
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		bad("CertFile", "CertFile and KeyFile go together")
	}
	if (c.Username == "") != (c.Password == "") {
		bad("Username", "Username and Password go together")
	}
	if c.DialTimeout < 0 {
		bad("DialTimeout", "is negative")
	}
	return errors.Join(errs...)
}

// tlsConfig is nil for a plain connection.
func (c ClientConfig) tlsConfig() (*tls.Config, error) {
	if !c.TLS && c.CAFile == "" && c.CertFile == "" {
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read CA file: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA file %s: no certificate in it", c.CAFile)
		}
	}
	if c.CertFile != "" {
		// Read at each handshake, so that a renewed certificate is used without a restart.
		if _, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile); err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
			return &pair, err
		}
	}
	return t, nil
}

// readAttempts bounds how often the client repeats a read, or any call whose token has run out, by itself. It never repeats a write
// that may have been sent.
const readAttempts = 5

// failFast lets a call fail when no member can be reached. The client's default waits for a connection until the deadline, and then it
// cannot be told whether anything was sent.
func failFast(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, cc, append(opts, grpc.WaitForReady(false))...)
}

// Dial makes a driver on a cluster. It does not wait for a connection: the first call does.
//
// The client does not repeat writes by itself once they may have been sent; what may have had its effect comes back as an
// IndefiniteError, and repeating it is the log's decision.
func Dial(ctx context.Context, c ClientConfig, o DriverOptions) (*Driver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	t, err := c.tlsConfig()
	if err != nil {
		return nil, fmt.Errorf("dial etcd: %w", err)
	}
	cfg := clientv3.Config{
		Endpoints: c.Endpoints, TLS: t, Username: c.Username, Password: c.Password, DialTimeout: c.DialTimeout,
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second, // a silent peer is found within 4 s
		MaxCallSendMsgSize: 8 << 20, // the server's limit decides, not the client's
		MaxUnaryRetries:    readAttempts,
		DialOptions:        []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast)},
		Context:            context.WithoutCancel(ctx),
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = 5 * time.Second
	}
	if o.Logger != nil {
		cfg.Logger = zapTo(o.Logger)
	} else {
		cfg.Logger = zapTo(discard())
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("dial etcd at %s: %w", strings.Join(c.Endpoints, ","), err)
	}
	return newDriver(ctx, client, o, client.Close), nil
}
