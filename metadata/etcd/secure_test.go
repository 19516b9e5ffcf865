package etcd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// authority signs certificates for one test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.sign("ca", nil, nil)
	return a
}

// sign writes name.pem and name.key, signed by the parent or by itself.
func (a *authority) sign(name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(name)) + 1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if parent == nil {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
		parent, parentKey = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, parentKey)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return parsed, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// tlsFront ends TLS with client certificates in front of a plain address.
func (a *authority) tlsFront(target string) string {
	a.t.Helper()
	pair, err := tls.LoadX509KeyPair(a.file("server.pem"), a.file("server.key"))
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		a.t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", target)
			if err != nil {
				_ = c.Close()
				continue
			}
			wg.Go(func() { _, _ = io.Copy(s, c); _ = s.Close(); _ = c.Close() })
			wg.Go(func() { _, _ = io.Copy(c, s); _ = s.Close(); _ = c.Close() })
		}
	})
	a.t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return l.Addr().String()
}

func TestTLS(t *testing.T) {
	s := startServer(t, ServerConfig{ListenClient: "127.0.0.1:0"})
	a := newAuthority(t)
	a.sign("server", a.cert, a.key)
	a.sign("client", a.cert, a.key)
	front := a.tlsFront(s.Endpoints()[0])
	for _, c := range []struct {
		name string
		cfg  ClientConfig
		ok   bool
	}{
		{"with a certificate", ClientConfig{CAFile: a.file("ca.pem"), CertFile: a.file("client.pem"), KeyFile: a.file("client.key")}, true},
		{"without a certificate", ClientConfig{CAFile: a.file("ca.pem")}, false},
		{"against the system's roots", ClientConfig{TLS: true, CertFile: a.file("client.pem"), KeyFile: a.file("client.key")}, false},
		{"plain", ClientConfig{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Endpoints = []string{front}
			d := dial(t, c.cfg)
			defer func() { _ = d.Close() }()
			if _, err := d.Append(t.Context(), entry("a", 1), nil); (err == nil) != c.ok {
				t.Errorf("append: %v", err)
			}
		})
	}
	if _, err := Dial(t.Context(), ClientConfig{Endpoints: []string{front}, CAFile: a.file("ca.key")}, DriverOptions{}); err == nil {
		t.Error("a CA file without a certificate was accepted")
	}
}

func TestPassword(t *testing.T) {
	s := startServer(t, ServerConfig{ListenClient: "127.0.0.1:0", bcryptCost: 4})
	admin := s.Driver(t.Context(), DriverOptions{})
	for _, step := range []func() error{
		func() error { _, err := admin.c.RoleAdd(t.Context(), "root"); return err },
		func() error { _, err := admin.c.UserAdd(t.Context(), "root", "secret"); return err },
		func() error { _, err := admin.c.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := admin.c.RoleAdd(t.Context(), "forebay"); return err },
		func() error {
			_, err := admin.c.RoleGrantPermission(t.Context(), "forebay", DefaultPrefix, clientv3.GetPrefixRangeEnd(DefaultPrefix), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := admin.c.UserAdd(t.Context(), "node", "word"); return err },
		func() error { _, err := admin.c.UserGrantRole(t.Context(), "node", "forebay"); return err },
		func() error { _, err := admin.c.AuthEnable(t.Context()); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if err := admin.Close(); err != nil {
		t.Fatal(err)
	}
	node := dial(t, ClientConfig{Endpoints: s.Endpoints(), Username: "node", Password: "word"})
	defer func() { _ = node.Close() }()
	if _, err := node.Append(t.Context(), entry("a", 1), nil); err != nil {
		t.Errorf("append with the password: %v", err)
	}
	if _, err := node.Head(t.Context()); err != nil {
		t.Errorf("head with the password: %v", err)
	}
	nobody := dial(t, ClientConfig{Endpoints: s.Endpoints()})
	defer func() { _ = nobody.Close() }()
	if _, err := nobody.Append(t.Context(), entry("a", 2), nil); err == nil {
		t.Error("append without a password succeeded")
	}
}
