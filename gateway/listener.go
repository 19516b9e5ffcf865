package gateway

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// limitListener hands out at most max connections at a time. Further ones wait in the kernel's queue: they cost the node nothing and are
// served as soon as another connection ends, which Timeouts.Idle sees to.
type limitListener struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
	gauge  prometheus.Gauge
	refuse func(plain []byte) []byte // see limitConn.Write
}

func newLimitListener(l net.Listener, max int, gauge prometheus.Gauge, refuse func([]byte) []byte) *limitListener {
	return &limitListener{Listener: l, slots: make(chan struct{}, max), closed: make(chan struct{}), gauge: gauge, refuse: refuse}
}

func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	l.gauge.Inc()
	return &limitConn{Conn: c, l: l}, nil
}

func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitConn struct {
	net.Conn
	once sync.Once
	l    *limitListener
	// handled is set while a handler's answer may be on its way.
	handled atomic.Bool
}

// Write passes p on. What net/http itself says about a request that it cannot read, and for which it calls no handler, is replaced by what
// refuse makes of it. (On a TLS connection it is encrypted by now, and stays as it is.)
func (c *limitConn) Write(p []byte) (int, error) {
	if !c.handled.Load() {
		if doc := c.l.refuse(p); doc != nil {
			_, err := c.Conn.Write(doc)
			return len(p), err
		}
	}
	return c.Conn.Write(p)
}

// CloseWrite lets net/http end an answer before the connection: closing it with unread data in it would take the answer back.
func (c *limitConn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}

func (c *limitConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		<-c.l.slots
		c.l.gauge.Dec()
	})
	return err
}
