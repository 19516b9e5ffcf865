package metrics

import (
	"context"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/objectstore"
)

var _ objectstore.Store = (*Store)(nil)

// Options of New. The zero value is the default.
type Options struct {
	// Registerer gets the metrics. Default: none; they are counted and nobody sees them.
	Registerer prometheus.Registerer
	// Clock times the requests. Default: the real clock.
	Clock clockwork.Clock
}

// WithDefaults fills what is not set.
func (o Options) WithDefaults() Options {
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	return o
}

// Validate finds nothing: every value is allowed.
func (o Options) Validate() error { return nil }

// Store passes everything on and counts it.
type Store struct {
	next  objectstore.Store
	clock clockwork.Clock
	ops   map[objectstore.Op]*series
}

// New wraps a store, which Close closes.
func New(next objectstore.Store, o Options) (*Store, error) {
	o = o.WithDefaults()
	ops, err := newSeries(o.Registerer)
	if err != nil {
		return nil, err
	}
	return &Store{next: next, clock: o.Clock, ops: ops}, nil
}

// call is one request that runs.
type call struct {
	s     *Store
	m     *series
	start time.Time
}

func (s *Store) start(op objectstore.Op) call {
	m := s.ops[op]
	m.inFlight.Inc()
	return call{s: s, m: m, start: s.clock.Now()}
}

// end counts the request; n is how many bytes of body it moved if it succeeded.
func (c call) end(n int, err error) {
	c.m.seconds.Observe(c.s.clock.Since(c.start).Seconds())
	c.m.byOutcome[objectstore.OutcomeOf(err)].Inc()
	if err == nil {
		c.m.bytes.Add(float64(n))
	}
	c.m.inFlight.Dec()
}

// Get implements objectstore.Store.
func (s *Store) Get(ctx context.Context, key string) ([]byte, objectstore.Info, error) {
	c := s.start(objectstore.OpGet)
	body, info, err := s.next.Get(ctx, key)
	c.end(len(body), err)
	return body, info, err
}

// GetRange implements objectstore.Store.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	c := s.start(objectstore.OpGetRange)
	body, err := s.next.GetRange(ctx, key, off, n)
	c.end(len(body), err)
	return body, err
}

// GetTail implements objectstore.Store.
func (s *Store) GetTail(ctx context.Context, key string, n int64) ([]byte, objectstore.Info, error) {
	c := s.start(objectstore.OpGetTail)
	body, info, err := s.next.GetTail(ctx, key, n)
	c.end(len(body), err)
	return body, info, err
}

// PutIfAbsent implements objectstore.Store.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte, id string) (objectstore.Info, error) {
	c := s.start(objectstore.OpPut)
	info, err := s.next.PutIfAbsent(ctx, key, body, id)
	c.end(len(body), err)
	return info, err
}

// PutIfMatch implements objectstore.Store.
func (s *Store) PutIfMatch(ctx context.Context, key, etag string, body []byte, id string) (objectstore.Info, error) {
	c := s.start(objectstore.OpPutMatch)
	info, err := s.next.PutIfMatch(ctx, key, etag, body, id)
	c.end(len(body), err)
	return info, err
}

// List implements objectstore.Store.
func (s *Store) List(ctx context.Context, prefix, startAfter string, limit int) (objectstore.Page, error) {
	c := s.start(objectstore.OpList)
	page, err := s.next.List(ctx, prefix, startAfter, limit)
	c.end(0, err)
	return page, err
}

// Delete implements objectstore.Store.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	c := s.start(objectstore.OpDelete)
	err := s.next.Delete(ctx, keys...)
	c.end(0, err)
	return err
}

// Stat implements objectstore.Store.
func (s *Store) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	c := s.start(objectstore.OpStat)
	info, err := s.next.Stat(ctx, key)
	c.end(0, err)
	return info, err
}

// Close closes the wrapped store.
func (s *Store) Close() error { return s.next.Close() }
