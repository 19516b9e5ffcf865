package etcd

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy forwards TCP connections to a server, and can cut them.
type proxy struct {
	t      *testing.T
	target string
	l      net.Listener
	wg     sync.WaitGroup
	mu     struct {
		sync.Mutex
		conns   map[net.Conn]struct{}
		deaf    bool          // swallow what the server says next, and cut the connection then
		refuse  bool          // cut new connections at once
		swallow chan struct{} // closed when an answer was swallowed
	}
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, target: target, l: l}
	p.mu.conns = map[net.Conn]struct{}{}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.cut(true)
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", p.target)
		p.mu.Lock()
		if err != nil || p.mu.refuse {
			p.mu.Unlock()
			_ = c.Close()
			if err == nil {
				_ = s.Close()
			}
			continue
		}
		p.mu.conns[c], p.mu.conns[s] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() { _, _ = io.Copy(s, c); _ = s.Close(); _ = c.Close() })
		p.wg.Go(func() { p.answers(c, s); _ = s.Close(); _ = c.Close() })
	}
}

func (p *proxy) answers(c, s net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := s.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		deaf := p.mu.deaf
		if deaf {
			p.mu.deaf = false
			close(p.mu.swallow)
		}
		p.mu.Unlock()
		if deaf {
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

// swallowNext makes the proxy swallow the next thing the server says, and cut that connection. The channel is closed when it has.
func (p *proxy) swallowNext() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.deaf, p.mu.swallow = true, make(chan struct{})
	return p.mu.swallow
}

// cut ends all connections, and refuses new ones if asked to.
func (p *proxy) cut(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.refuse = refuse
	for c := range p.mu.conns {
		_ = c.Close()
		delete(p.mu.conns, c)
	}
}
