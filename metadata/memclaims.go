package metadata

import (
	"context"
	"errors"
	"time"
)

// Claim implements Driver. holder is informative only: a connection that asks again for a claim it holds is told that it is held.
func (d *MemDriver) Claim(ctx context.Context, name, holder string, ttl time.Duration) (*HeldClaim, bool, error) {
	if name == "" || holder == "" || ttl <= 0 {
		return nil, false, errors.New("claim: name, holder and a positive ttl are needed")
	}
	if err := d.check(ctx); err != nil {
		return nil, false, err
	}
	s := d.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.claims[name] != nil {
		return nil, false, nil
	}
	s.mu.revision++
	c := &memClaim{owner: d, epoch: s.mu.revision, ttl: ttl, done: make(chan struct{})}
	s.mu.claims[name] = c
	return &HeldClaim{Name: name, Epoch: c.epoch, Done: c.done}, true, nil
}

// Release implements Driver. Releasing a claim that is not held any more succeeds.
func (d *MemDriver) Release(ctx context.Context, h *HeldClaim) error {
	s := d.store
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mu.claims[h.Name]
	if c == nil || c.epoch != h.Epoch {
		return nil
	}
	c.lose()
	if err := d.check(ctx); err != nil {
		return err // the holder lets go; the store frees it when its ttl ends
	}
	s.freeLocked(h.Name, c)
	return nil
}

// lose tells the holder. The store's mutex is held.
func (c *memClaim) lose() {
	if !c.gone {
		c.gone = true
		close(c.done)
	}
}

func (s *memStore) freeLocked(name string, c *memClaim) {
	c.lose()
	c.stopTimers()
	if s.mu.claims[name] == c {
		delete(s.mu.claims, name)
		s.mu.revision++
	}
}

func (c *memClaim) stopTimers() {
	if c.lost != nil {
		c.lost.Stop()
		c.free.Stop()
		c.lost, c.free = nil, nil
	}
}

// holderMoved starts or stops the end of the claims of a connection. The holder gives up at two thirds of the ttl, the store at the whole
// of it: so a holder that watches Done never acts beside its successor.
func (s *memStore) holderMoved(d *MemDriver, reachable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range s.mu.claims {
		switch {
		case c.owner != d:
		case reachable && !c.gone:
			c.stopTimers()
		case !reachable && c.lost == nil:
			c.lost = s.clock.AfterFunc(c.ttl*2/3, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				if c.lost != nil {
					c.lose()
				}
			})
			c.free = s.clock.AfterFunc(c.ttl, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				if c.free != nil {
					s.freeLocked(name, c)
				}
			})
		}
	}
}

func (s *memStore) dropHolder(d *MemDriver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range s.mu.claims {
		if c.owner == d {
			s.freeLocked(name, c)
		}
	}
}
