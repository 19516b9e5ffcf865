package gateway

import (
	"io"
	"sync"

	"github.com/jonboulle/clockwork"
	"github.com/oklog/ulid/v2"
)

const headerRequestID = "X-Request-Id"

// maxRequestID bounds an identifier that a client chose: it is in every log line of its request.
const maxRequestID = 128

// saneRequestID says whether a client's identifier may be echoed: printable ASCII without spaces at the ends, of bounded length.
func saneRequestID(s string) bool {
	if len(s) == 0 || len(s) > maxRequestID {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return s[0] != ' ' && s[len(s)-1] != ' '
}

// requestIDs makes identifiers that sort by time.
type requestIDs struct {
	clock clockwork.Clock
	mu    struct {
		sync.Mutex
		random io.Reader // read in chunks into buf: crypto/rand costs a call each
		buf    [512]byte
		left   int
	}
}

func newRequestIDs(clock clockwork.Clock, random io.Reader) *requestIDs {
	g := &requestIDs{clock: clock}
	g.mu.random = random
	return g
}

func (g *requestIDs) next() string {
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(g.clock.Now())) // fails beyond the year 10889 only
	g.mu.Lock()
	if g.mu.left < 10 {
		// crypto/rand does not fail; of another source a short read only makes the identifier less random.
		_, _ = io.ReadFull(g.mu.random, g.mu.buf[:])
		g.mu.left = len(g.mu.buf)
	}
	start := len(g.mu.buf) - g.mu.left
	copy(id[6:], g.mu.buf[start:start+10])
	g.mu.left -= 10
	g.mu.Unlock()
	return id.String()
}
