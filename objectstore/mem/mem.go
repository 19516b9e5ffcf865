// Package mem is the object store in memory, for tests and simulations.
//
// It is deterministic: ETags are numbers that count the writes, times come from the injected clock, and nothing runs in the
// background. Bodies are copied on the way in and out, so neither side can change what the other has. Nothing survives the process.
package mem

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/forebaymq/forebay/objectstore"
)

var _ objectstore.Store = (*Store)(nil)

// Options of New. The zero value is the default.
type Options struct {
	// Clock gives Info.Modified. Default: the real clock.
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

// object is never changed once it is in the map, so readers use it without the lock.
type object struct {
	body     []byte
	id, etag string
	modified time.Time
}

func (o *object) info(key string) objectstore.Info {
	return objectstore.Info{Key: key, Size: int64(len(o.body)), Modified: o.modified, ETag: o.etag, ID: o.id}
}

// Store keeps objects in a map.
type Store struct {
	clock clockwork.Clock
	mu    struct {
		sync.Mutex
		closed  bool
		writes  uint64
		objects map[string]*object
		sorted  []string // the keys in byte order as of the last List; may hold deleted ones
		stale   bool     // a key was added since
	}
}

// New makes an empty store.
func New(o Options) *Store {
	o = o.WithDefaults()
	s := &Store{clock: o.Clock}
	s.mu.objects = map[string]*object{}
	return s
}

// begin is what every operation checks first.
func (s *Store) begin(ctx context.Context, op, key string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", op, key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return fmt.Errorf("%s %s: %w: store is closed", op, key, objectstore.ErrUnavailable)
	}
	return nil
}

func (s *Store) find(ctx context.Context, op, key string) (*object, error) {
	if err := s.begin(ctx, op, key); err != nil {
		return nil, err
	}
	if err := objectstore.ValidateKey(key); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	s.mu.Lock()
	o := s.mu.objects[key]
	s.mu.Unlock()
	if o == nil {
		return nil, fmt.Errorf("%s %s: %w", op, key, objectstore.ErrNotFound)
	}
	return o, nil
}

// Get implements objectstore.Store.
func (s *Store) Get(ctx context.Context, key string) ([]byte, objectstore.Info, error) {
	o, err := s.find(ctx, "get", key)
	if err != nil {
		return nil, objectstore.Info{}, err
	}
	return bytes.Clone(o.body), o.info(key), nil
}

// GetRange implements objectstore.Store.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	o, err := s.find(ctx, "get range", key)
	if err != nil {
		return nil, err
	}
	if err := objectstore.ValidateRange(off, n); err != nil {
		return nil, fmt.Errorf("get range %s: %w", key, err)
	}
	size := int64(len(o.body))
	if off >= size {
		return nil, fmt.Errorf("get range %s: %w: offset %d, size %d", key, objectstore.ErrInvalidRange, off, size)
	}
	return bytes.Clone(o.body[off : off+min(n, size-off)]), nil
}

// GetTail implements objectstore.Store.
func (s *Store) GetTail(ctx context.Context, key string, n int64) ([]byte, objectstore.Info, error) {
	o, err := s.find(ctx, "get tail", key)
	if err != nil {
		return nil, objectstore.Info{}, err
	}
	if err := objectstore.ValidateRange(0, n); err != nil {
		return nil, objectstore.Info{}, fmt.Errorf("get tail %s: %w", key, err)
	}
	size := int64(len(o.body))
	return bytes.Clone(o.body[size-min(n, size):]), o.info(key), nil
}

// Stat implements objectstore.Store.
func (s *Store) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	o, err := s.find(ctx, "stat", key)
	if err != nil {
		return objectstore.Info{}, err
	}
	return o.info(key), nil
}

// PutIfAbsent implements objectstore.Store.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte, id string) (objectstore.Info, error) {
	if err := s.begin(ctx, "put", key); err != nil {
		return objectstore.Info{}, err
	}
	if err := objectstore.ValidatePut(key, id); err != nil {
		return objectstore.Info{}, fmt.Errorf("put: %w", err)
	}
	o := &object{body: bytes.Clone(body), id: id, modified: s.clock.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.mu.objects[key]; old != nil {
		if old.id == id {
			return old.info(key), nil
		}
		return objectstore.Info{}, fmt.Errorf("put %s: %w: written by %s", key, objectstore.ErrExists, old.id)
	}
	s.storeLocked(key, o)
	s.mu.stale = true
	return o.info(key), nil
}

// PutIfMatch implements objectstore.Store.
func (s *Store) PutIfMatch(ctx context.Context, key, etag string, body []byte, id string) (objectstore.Info, error) {
	if err := s.begin(ctx, "put", key); err != nil {
		return objectstore.Info{}, err
	}
	if err := objectstore.ValidatePut(key, id); err != nil {
		return objectstore.Info{}, fmt.Errorf("put: %w", err)
	}
	o := &object{body: bytes.Clone(body), id: id, modified: s.clock.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.mu.objects[key]
	if old == nil {
		return objectstore.Info{}, fmt.Errorf("put %s: %w", key, objectstore.ErrNotFound)
	}
	if old.etag != etag {
		return objectstore.Info{}, fmt.Errorf("put %s: %w: version %s, not %s", key, objectstore.ErrPreconditionFailed, old.etag, etag)
	}
	s.storeLocked(key, o)
	return o.info(key), nil
}

func (s *Store) storeLocked(key string, o *object) {
	s.mu.writes++
	o.etag = strconv.FormatUint(s.mu.writes, 10)
	s.mu.objects[key] = o
}

// List implements objectstore.Store.
func (s *Store) List(ctx context.Context, prefix, startAfter string, limit int) (objectstore.Page, error) {
	if err := s.begin(ctx, "list", prefix); err != nil {
		return objectstore.Page{}, err
	}
	if err := objectstore.ValidateListLimit(limit); err != nil {
		return objectstore.Page{}, fmt.Errorf("list %s: %w", prefix, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sortLocked()
	var page objectstore.Page
	for i := sort.SearchStrings(s.mu.sorted, max(prefix, startAfter)); i < len(s.mu.sorted); i++ {
		key := s.mu.sorted[i]
		if !strings.HasPrefix(key, prefix) {
			break
		}
		o := s.mu.objects[key]
		if o == nil || key <= startAfter {
			continue
		}
		if len(page.Objects) == limit {
			page.Next = page.Objects[limit-1].Key
			break
		}
		page.Objects = append(page.Objects, o.info(key))
	}
	return page, nil
}

// sortLocked brings sorted up to date. Keys are sorted here and not as they are written, because inserting each into a long slice
// would cost its length; a List pays only if keys came since the last one, or if most of what it would walk over is deleted.
func (s *Store) sortLocked() {
	if !s.mu.stale && len(s.mu.sorted) <= 2*len(s.mu.objects) {
		return
	}
	s.mu.sorted = slices.AppendSeq(s.mu.sorted[:0], maps.Keys(s.mu.objects))
	slices.Sort(s.mu.sorted)
	s.mu.stale = false
}

// Delete implements objectstore.Store.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	if err := s.begin(ctx, "delete", ""); err != nil {
		return allFailed(keys, err)
	}
	if err := objectstore.ValidateDelete(keys); err != nil {
		return err
	}
	failed := objectstore.KeyErrors{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if err := objectstore.ValidateKey(key); err != nil {
			failed[key] = fmt.Errorf("delete: %w", err)
			continue
		}
		delete(s.mu.objects, key)
	}
	return failed.OrNil()
}

func allFailed(keys []string, err error) error {
	failed := objectstore.KeyErrors{}
	for _, key := range keys {
		failed[key] = err
	}
	return failed.OrNil()
}

// Close makes every later operation ErrUnavailable. The objects stay in memory as long as the Store does.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	return nil
}
