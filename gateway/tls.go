package gateway

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"
)

// certReloader serves a certificate from two files and reads them again when they change, so that a renewal needs no restart. The
// files are looked at during a handshake, at most once an interval, by one handshake at a time; the others go on with what is
// there. Files that cannot be read or do not match leave the last good pair in use: a renewal writes two files, one after the other.
type certReloader struct {
	certFile, keyFile string
	every             time.Duration
	clock             clockwork.Clock
	log               *slog.Logger

	current atomic.Pointer[loadedCert]
	next    atomic.Int64 // Unix ns of the next look
}

type loadedCert struct {
	cert      *tls.Certificate
	certStamp fileStamp
	keyStamp  fileStamp
}

type fileStamp struct {
	modified int64
	size     int64
}

func newCertReloader(certFile, keyFile string, every time.Duration, clock clockwork.Clock, log *slog.Logger) (*certReloader, error) {
	r := &certReloader{certFile: certFile, keyFile: keyFile, every: every, clock: clock, log: log}
	c, err := r.load()
	if err != nil {
		return nil, err
	}
	r.current.Store(c)
	r.next.Store(clock.Now().Add(every).UnixNano())
	return r, nil
}

// load reads both files. The stamps are taken first: a change during the reading is then seen by the next look.
func (r *certReloader) load() (*loadedCert, error) {
	cs, ks, err := r.stamps()
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(r.certFile, r.keyFile)
	if err != nil {
		return nil, fmt.Errorf("load certificate: %w", err)
	}
	return &loadedCert{cert: &pair, certStamp: cs, keyStamp: ks}, nil
}

func (r *certReloader) stamps() (cert, key fileStamp, err error) {
	ci, err := os.Stat(r.certFile)
	if err != nil {
		return cert, key, fmt.Errorf("look at certificate: %w", err)
	}
	ki, err := os.Stat(r.keyFile)
	if err != nil {
		return cert, key, fmt.Errorf("look at key: %w", err)
	}
	return fileStamp{ci.ModTime().UnixNano(), ci.Size()}, fileStamp{ki.ModTime().UnixNano(), ki.Size()}, nil
}

// GetCertificate is for tls.Config.
func (r *certReloader) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	now, next := r.clock.Now(), r.next.Load()
	if now.UnixNano() >= next && r.next.CompareAndSwap(next, now.Add(r.every).UnixNano()) {
		r.refresh()
	}
	return r.current.Load().cert, nil
}

func (r *certReloader) refresh() {
	have := r.current.Load()
	cs, ks, err := r.stamps()
	if err == nil && cs == have.certStamp && ks == have.keyStamp {
		return
	}
	fresh, err := r.load()
	if err != nil {
		r.log.Warn("certificate not reloaded, the last good one stays in use", "error", err)
		return
	}
	r.current.Store(fresh)
	r.log.Info("certificate reloaded", "file", r.certFile)
}

// tlsConfig asks for TLS 1.2 at least; Go's own defaults choose ciphers and curves.
func (r *certReloader) tlsConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: r.GetCertificate}
}
