package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/jonboulle/clockwork"

	"github.com/forebaymq/forebay/leases/store"
)

func (c Config) validateRedis(v *findings) {
	v.check(c.Redis == "" || !c.EmbeddedRedis, "redis", "is embedded, or at an address, not both")
	if c.Redis != "" {
		err := store.Options{URL: c.Redis, Fabric: "any", Instance: "any"}.WithDefaults().Validate()
		v.check(err == nil, "redis", "%v", err)
	}
}

// redisTick is how often the embedded Redis looks for keys whose time is up. They may go that much early. Nothing depends on it: leases end by
// deadlines that the scripts compare with Redis's clock.
const redisTick = 100 * time.Millisecond

// embeddedRedis is a Redis within this process, for the embedded fabric. It holds nothing on disk: what it has may be lost at any moment, and the
// journal brings it back.
type embeddedRedis struct {
	server *miniredis.Miniredis
	url    string // with the password; of no use to other processes once this one has ended
	stop   context.CancelFunc
	once   sync.Once
	wg     sync.WaitGroup
}

// startRedis starts one on a free port of loopback, with a password that only this process knows.
func startRedis(clock clockwork.Clock, random io.Reader) (*embeddedRedis, error) {
	if random == nil {
		random = rand.Reader
	}
	var secret [16]byte
	if _, err := io.ReadFull(random, secret[:]); err != nil {
		return nil, fmt.Errorf("start embedded Redis: %w", err)
	}
	password := hex.EncodeToString(secret[:])
	r := &embeddedRedis{server: miniredis.NewMiniRedis()}
	r.server.RequireAuth(password)
	if err := r.server.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("start embedded Redis: %w", err)
	}
	r.url = (&url.URL{Scheme: "redis", User: url.UserPassword("", password), Host: r.server.Addr()}).String()
	ctx, stop := context.WithCancel(context.Background()) // the server's own life
	r.stop = stop
	r.wg.Go(func() { r.tick(ctx, clock) })
	return r, nil
}

// tick lets keys expire. TIME answers the real time by itself; what is left of a key's life goes down only when it is told to.
func (r *embeddedRedis) tick(ctx context.Context, clock clockwork.Clock) {
	ticker := clock.NewTicker(redisTick)
	defer ticker.Stop()
	for last := clock.Now(); ; {
		select {
		case <-ticker.Chan():
			now := clock.Now()
			r.server.FastForward(now.Sub(last))
			last = now
		case <-ctx.Done():
			return
		}
	}
}

// Close ends the server, its connections and its clock.
func (r *embeddedRedis) Close() error {
	r.once.Do(func() {
		r.stop()
		r.wg.Wait()
		r.server.Close()
	})
	return nil
}
