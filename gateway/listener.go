package gateway

import (
	"net"
	"sync"

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
}

func newLimitListener(l net.Listener, max int, gauge prometheus.Gauge) *limitListener {
	return &limitListener{Listener: l, slots: make(chan struct{}, max), closed: make(chan struct{}), gauge: gauge}
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
}

func (c *limitConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		<-c.l.slots
		c.l.gauge.Dec()
	})
	return err
}
