package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Relays find each other in a table: each has a row whose beat it raises, three times a lease. Who sees a beat stand still for a lease, by
// its own clock, removes the row and frees the shards. That decides only who works: a relay that was removed and does not know it yet
// can change nothing, because every transaction on a shard looks at the owner, and no publish of its session is taken any more.

// sign is when a relay's beat was first seen to have a value.
type sign struct {
	beat int64
	at   time.Time
}

// membership is a relay's part in the group of relays.
type membership struct {
	r    *Relay
	me   string // "" = not registered
	seen map[string]sign

	mu struct {
		sync.Mutex
		workers map[int]*worker
	}
	workers map[int]*worker // the same, for m.run alone
}

func newMembership(r *Relay) *membership {
	m := &membership{r: r, seen: map[string]sign{}, workers: map[int]*worker{}}
	m.mu.workers = map[int]*worker{}
	return m
}

// run keeps this relay among the others, and its share of the shards at work.
func (m *membership) run(ctx context.Context) {
	every := m.r.o.lease / 3
	for first := true; ; first = false {
		if !first && !sleep(ctx, every) {
			return
		}
		tctx, cancel := context.WithTimeout(ctx, max(m.r.o.lease, time.Second))
		err := m.tick(tctx)
		cancel()
		m.r.report(membershipErr, err)
		if err != nil && ctx.Err() == nil {
			m.r.o.log.Warn("outbox: the relay cannot reach its tables", "err", err)
		}
	}
}

// tick shows a sign of life, removes who shows none, and takes or gives shards.
func (m *membership) tick(ctx context.Context) error {
	m.r.o.hook("tick")
	if err := m.beat(ctx); err != nil {
		return err
	}
	relays, err := m.watch(ctx)
	if err != nil {
		return err
	}
	mine, err := m.r.store.numbers(ctx, `SELECT shard FROM {shards} WHERE owner = $1 ORDER BY shard`, m.me)
	if err != nil {
		return fmt.Errorf("list shards: %w", err)
	}
	want := share(m.me, relays, Shards)
	for shard, w := range m.workers { // ended by themselves, or the shard is somebody else's
		if w.ended() || !slices.Contains(mine, shard) {
			w.abort()
			w.stop()
			<-w.done
			m.drop(shard)
			m.r.report(shard, nil)
		}
	}
	for len(mine) > want {
		shard := mine[len(mine)-1]
		mine = mine[:len(mine)-1]
		if w := m.workers[shard]; w != nil {
			w.stop() // it gives the shard back itself, when its publish is over; a later tick clears it away
		} else if err := m.r.store.release(ctx, m.me, shard); err != nil {
			return err
		}
	}
	if len(mine) < want {
		got, err := m.claim(ctx, want-len(mine))
		if err != nil {
			return err
		}
		mine = append(mine, got...)
	}
	for _, shard := range mine {
		if m.workers[shard] == nil {
			m.add(startWorker(context.WithoutCancel(ctx), m.r, shard, m.me))
		}
	}
	m.r.mu.Lock()
	m.r.mu.shards = slices.Sorted(slices.Values(mine))
	m.r.mu.Unlock()
	return nil
}

func (m *membership) add(w *worker) {
	m.workers[w.shard] = w
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.workers[w.shard] = w
}

func (m *membership) drop(shard int) {
	delete(m.workers, shard)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.workers, shard)
}

// beat raises this relay's beat, and registers it where it has no row: at the start, and when the others took it for dead.
func (m *membership) beat(ctx context.Context) error {
	s := &m.r.store
	if m.me != "" {
		res, err := s.db.ExecContext(ctx, s.t.sql(`UPDATE {relays} SET beat = beat + 1 WHERE relay = $1`), m.me)
		if err != nil {
			return fmt.Errorf("show a sign of life: %w", err)
		}
		if n, err := res.RowsAffected(); err == nil && n == 1 {
			return nil
		}
		m.r.o.log.Warn("outbox: the other relays took this one for dead", "relay", m.me)
		m.me = ""
	}
	name := newName()
	if _, err := s.db.ExecContext(ctx, s.t.sql(`INSERT INTO {relays} (relay) VALUES ($1)`), name); err != nil {
		return fmt.Errorf("register the relay: %w", err)
	}
	m.me = name
	return nil
}

// watch lists the live relays and removes those whose beat stood still.
func (m *membership) watch(ctx context.Context) ([]string, error) {
	s := &m.r.store
	rows, err := s.db.QueryContext(ctx, s.t.sql(`SELECT relay, beat FROM {relays}`))
	if err != nil {
		return nil, fmt.Errorf("list relays: %w", err)
	}
	defer rows.Close()
	now, beats := time.Now(), map[string]int64{}
	for rows.Next() {
		var relay string
		var beat int64
		if err := rows.Scan(&relay, &beat); err != nil {
			return nil, fmt.Errorf("list relays: %w", err)
		}
		beats[relay] = beat
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list relays: %w", err)
	}
	for relay := range m.seen {
		if _, ok := beats[relay]; !ok {
			delete(m.seen, relay)
		}
	}
	var live []string
	for relay, beat := range beats {
		last, known := m.seen[relay]
		switch {
		case !known || last.beat != beat:
			m.seen[relay] = sign{beat, now}
		case relay != m.me && now.Sub(last.at) > m.r.o.lease:
			gone, err := s.evict(ctx, relay, beat)
			if err != nil {
				return nil, err
			}
			if gone {
				m.r.o.log.Warn("outbox: a relay shows no sign of life, its shards are free", "relay", relay)
				continue
			}
		}
		live = append(live, relay)
	}
	return live, nil
}

// share is how many of n shards a relay shall have: all relays the same number, or one more for the first of them by name.
func share(me string, relays []string, n int) int {
	relays = slices.Sorted(slices.Values(relays))
	rank := slices.Index(relays, me)
	if rank < 0 {
		return 0
	}
	count := n / len(relays)
	if rank < n%len(relays) {
		count++
	}
	return count
}

// evict removes a relay whose beat still is what it was, and frees its shards. The batches under way stay named in them.
func (s *store) evict(ctx context.Context, relay string, beat int64) (gone bool, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, s.t.sql(`DELETE FROM {relays} WHERE relay = $1 AND beat = $2`), relay, beat)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil || n == 0 {
			return err
		}
		gone = true
		return s.free(ctx, tx, relay)
	})
	if err != nil {
		return false, fmt.Errorf("remove relay %s: %w", relay, err)
	}
	return gone, nil
}

// free frees all shards of a relay, locking them in the order in which everybody does.
func (s *store) free(ctx context.Context, tx *sql.Tx, relay string) error {
	_, err := tx.ExecContext(ctx, s.t.sql(`UPDATE {shards} SET owner = NULL WHERE shard IN (SELECT shard FROM {shards} WHERE owner = $1 ORDER BY shard FOR UPDATE)`), relay)
	return err
}

// claim takes up to n shards that are free, or whose owner is no relay any more (somebody has deleted its row by hand). Its own row is locked meanwhile: who removes it waits, and then frees these shards too.
func (m *membership) claim(ctx context.Context, n int) (shards []int, err error) {
	s := &m.r.store
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		var one int
		switch err := tx.QueryRowContext(ctx, s.t.sql(`SELECT 1 FROM {relays} WHERE relay = $1 FOR SHARE`), m.me).Scan(&one); {
		case errors.Is(err, sql.ErrNoRows):
			return nil // the next beat finds out
		case err != nil:
			return err
		}
		rows, err := tx.QueryContext(ctx, s.t.sql(`UPDATE {shards} SET owner = $1 WHERE shard IN (
			SELECT shard FROM {shards} s WHERE owner IS NULL OR NOT EXISTS (SELECT FROM {relays} r WHERE r.relay = s.owner)
			ORDER BY shard LIMIT $2 FOR UPDATE OF s SKIP LOCKED) RETURNING shard`), m.me, n)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var shard int
			if err := rows.Scan(&shard); err != nil {
				return err
			}
			shards = append(shards, shard)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("claim shards: %w", err)
	}
	return shards, nil
}

// release frees one shard.
func (s *store) release(ctx context.Context, owner string, shard int) error {
	_, err := s.db.ExecContext(ctx, s.t.sql(`UPDATE {shards} SET owner = NULL WHERE shard = $1 AND owner = $2`), shard, owner)
	if err != nil {
		return fmt.Errorf("give shard %d back: %w", shard, err)
	}
	return nil
}

// poll looks for shards with something to do and wakes their workers.
func (m *membership) poll(ctx context.Context) {
	pause := m.r.o.minPoll
	last := int64(-1)
	for {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-m.r.wake:
			timer.Stop()
		}
		if now := m.r.published.Load(); now != last {
			last, pause = now, m.r.o.minPoll
		} else {
			pause = min(2*pause, m.r.o.maxPoll)
		}
		m.mu.Lock()
		owners := map[string]bool{}
		for _, w := range m.mu.workers {
			owners[w.owner] = true
		}
		m.mu.Unlock()
		for owner := range owners { // one, but for the moment after the others took this relay for dead
			shards, err := m.r.store.busy(ctx, owner)
			if err != nil {
				if ctx.Err() == nil {
					m.r.o.log.Warn("outbox: cannot look for rows", "err", err)
				}
				continue
			}
			m.mu.Lock()
			for _, shard := range shards {
				if w := m.mu.workers[shard]; w != nil {
					w.signal()
				}
			}
			m.mu.Unlock()
		}
	}
}

// leave ends the workers, each after the publish that it has under way, and gives everything back.
func (m *membership) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, m.r.o.grace+time.Second)
	defer cancel()
	for _, w := range m.workers {
		w.stop()
	}
	grace := time.NewTimer(m.r.o.grace)
	defer grace.Stop()
	for shard, w := range m.workers {
		select {
		case <-w.done:
		case <-grace.C:
			for _, w := range m.workers {
				w.abort()
			}
			<-w.done
		}
		m.drop(shard)
	}
	if m.me == "" {
		return
	}
	s := &m.r.store
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, s.t.sql(`DELETE FROM {relays} WHERE relay = $1`), m.me); err != nil {
			return err
		}
		return s.free(ctx, tx, m.me)
	})
	if err != nil {
		m.r.o.log.Warn("outbox: the shards are not given back, the other relays take them after a lease", "err", err)
	}
	m.r.mu.Lock()
	m.r.mu.shards = nil
	m.r.mu.Unlock()
}
