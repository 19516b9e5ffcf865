package store

import (
	"bufio"
	"io"
	"sync"

	"github.com/jonboulle/clockwork"
	"github.com/oklog/ulid/v2"
)

// nonces makes names of leases that never repeat: 48 bits of time and 80 random ones.
type nonces struct {
	sync.Mutex
	rand  *bufio.Reader
	clock clockwork.Clock
}

func (n *nonces) init(r io.Reader, c clockwork.Clock) {
	n.rand, n.clock = bufio.NewReaderSize(r, 1024), c
}

func (n *nonces) next() (string, error) {
	n.Lock()
	defer n.Unlock()
	id, err := ulid.New(ulid.Timestamp(n.clock.Now()), n.rand)
	return id.String(), err
}

// seed is a start for a script's jitter, 1 to 2^31-2.
func (n *nonces) seed() (int64, error) {
	n.Lock()
	defer n.Unlock()
	var b [4]byte
	if _, err := io.ReadFull(n.rand, b[:]); err != nil {
		return 0, err
	}
	v := int64(b[0])<<24 | int64(b[1])<<16 | int64(b[2])<<8 | int64(b[3])
	return v%2147483646 + 1, nil
}
