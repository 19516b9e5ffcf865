package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
)

// writeCert writes a self-signed certificate for loopback with a serial number.
func writeCert(t *testing.T, dir string, serial int64) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "forebay"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	k, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	stamp := time.Unix(1_700_000_000+serial, 0) // file systems have coarse clocks
	for name, b := range map[string][]byte{
		certFile: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: k}),
	} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, stamp, stamp); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func serialOf(t *testing.T, addr string, cfg *tls.Config) (int64, error) {
	t.Helper()
	cfg.InsecureSkipVerify = true // the test's own certificate: only its number matters
	d := tls.Dialer{Config: cfg}
	c, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

func TestTLSReloadsItsCertificate(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := writeCert(t, dir, 1)
	clock := clockwork.NewFakeClockAt(time.Now())
	n := start(t, func(o *Options) { o.TLSCertFile, o.TLSKeyFile, o.Clock = certFile, keyFile, clock })
	want := func(serial int64) {
		t.Helper()
		if got, err := serialOf(t, n.Addr(), &tls.Config{}); err != nil || got != serial {
			t.Errorf("certificate %d, %v, want %d", got, err, serial)
		}
	}
	want(1)
	writeCert(t, dir, 2)
	want(1) // not looked at yet
	clock.Advance(10 * time.Second)
	want(2)
	if err := os.WriteFile(keyFile, []byte("half a renewal"), 0o600); err != nil {
		t.Fatal(err)
	}
	clock.Advance(10 * time.Second)
	want(2) // the last good pair
	if !strings.Contains(n.log.String(), "certificate not reloaded") {
		t.Error("a failed reload is not logged")
	}
	writeCert(t, dir, 3)
	clock.Advance(10 * time.Second)
	want(3)
	if err := os.Remove(certFile); err != nil {
		t.Fatal(err)
	}
	clock.Advance(10 * time.Second)
	want(3)
}

func TestTLSVersionsAndHTTP2(t *testing.T) {
	certFile, keyFile := writeCert(t, t.TempDir(), 1)
	n := start(t, func(o *Options) { o.TLSCertFile, o.TLSKeyFile = certFile, keyFile })
	if _, err := serialOf(t, n.Addr(), &tls.Config{MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	if _, err := serialOf(t, n.Addr(), &tls.Config{MaxVersion: tls.VersionTLS12}); err != nil {
		t.Errorf("TLS 1.2: %v", err)
	}
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer tr.CloseIdleConnections()
	req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://"+n.Addr()+"/healthz", nil)
	res, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.ProtoMajor != 2 || res.StatusCode != 200 {
		t.Errorf("%s, %d", res.Proto, res.StatusCode)
	}
}

func TestTLSWithoutFilesDoesNotStart(t *testing.T) {
	o := testOptions(newFabric(), &logBuffer{})
	o.TLSCertFile, o.TLSKeyFile = filepath.Join(t.TempDir(), "none"), filepath.Join(t.TempDir(), "none")
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("start: %v", err)
	}
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}
