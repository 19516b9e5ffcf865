package redistest

import (
	"net"
	"sync"

	"github.com/alicebob/miniredis/v2"
)

// DialBuffered connects to an in-process Redis. What is written is sent by a goroutine, as a socket's buffer would take it: a pipe has none, and a
// client that writes several commands while the server writes its first answer would wait for ever.
func DialBuffered(r *miniredis.Miniredis) (net.Conn, error) {
	c, err := r.Dial()
	if err != nil {
		return nil, err
	}
	b := &bufferedConn{Conn: c, some: make(chan struct{}, 1), closed: make(chan struct{})}
	go b.pump()
	return b, nil
}

type bufferedConn struct {
	net.Conn
	mu     sync.Mutex
	buf    []byte
	err    error
	some   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (b *bufferedConn) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	b.buf = append(b.buf, p...)
	select {
	case b.some <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (b *bufferedConn) pump() {
	for {
		select {
		case <-b.some:
		case <-b.closed:
			return
		}
		b.mu.Lock()
		p := b.buf
		b.buf = nil
		b.mu.Unlock()
		if _, err := b.Conn.Write(p); err != nil {
			b.mu.Lock()
			b.err = err
			b.mu.Unlock()
			return
		}
	}
}

func (b *bufferedConn) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Conn.Close()
}
