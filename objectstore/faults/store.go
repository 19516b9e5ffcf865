package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/forebaymq/forebay/objectstore"
)

var _ objectstore.Store = (*Store)(nil)

// ErrInjected is in every error that a rule made, beside the error of the contract.
var ErrInjected = errors.New("injected")

// Options of New. The zero value injects nothing.
type Options struct {
	// Plan is the seed and the rules. Rules can be replaced later (SetRules).
	Plan Plan
	// Clock passes the delays. Default: the real clock.
	Clock clockwork.Clock
}

// WithDefaults fills what is not set.
func (o Options) WithDefaults() Options {
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	return o
}

// Validate reports every fault of the rules.
func (o Options) Validate() error { return validate(o.Plan.Rules) }

func validate(rules []Rule) error {
	var errs []error
	for i, r := range rules {
		if err := r.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("rule %d (%s): %w", i, r, err))
		}
	}
	return errors.Join(errs...)
}

// Count says what one rule did.
type Count struct {
	Rule    string
	Matched int // calls that it matched
	Acted   int // calls that it delayed, failed or cut
}

// active is a rule with its state.
type active struct {
	Rule
	rng            *rand.Rand
	matched, acted int
}

// Store injects faults into another.
type Store struct {
	next  objectstore.Store
	clock clockwork.Clock
	seed  uint64
	mu    struct {
		sync.Mutex
		closed bool
		rules  []*active
	}
	late    sync.WaitGroup // writes whose effect comes late; added to under mu
	closing chan struct{}
	once    sync.Once
	err     error
}

// New wraps a store, which Close closes.
func New(next objectstore.Store, o Options) (*Store, error) {
	o = o.WithDefaults()
	s := &Store{next: next, clock: o.Clock, seed: o.Plan.Seed, closing: make(chan struct{})}
	if err := s.SetRules(o.Plan.Rules...); err != nil {
		return nil, err
	}
	return s, nil
}

// SetRules replaces the rules. Their counts and draws start anew, from the same seed.
func (s *Store) SetRules(rules ...Rule) error {
	if err := validate(rules); err != nil {
		return fmt.Errorf("object store faults: %w", err)
	}
	actives := make([]*active, len(rules))
	for i, r := range rules {
		actives[i] = &active{Rule: r, rng: rand.New(rand.NewPCG(s.seed, uint64(i)))}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.rules = actives
	return nil
}

// Counts says what the rules did since they were set, in their order.
func (s *Store) Counts() []Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make([]Count, len(s.mu.rules))
	for i, r := range s.mu.rules {
		counts[i] = Count{Rule: r.String(), Matched: r.matched, Acted: r.acted}
	}
	return counts
}

// verdict is what the rules together do to one call.
type verdict struct {
	latencies []drawn
	rule      *Rule // the first that fails or cuts; nil if none does
}

// drawn is a delay of which the part that depends on the size is still open, because a read's is known only after it.
type drawn struct {
	fixed  time.Duration
	perMiB time.Duration
}

func (v verdict) delay(size int) time.Duration {
	var d time.Duration
	for _, l := range v.latencies {
		d += l.fixed + time.Duration(float64(l.perMiB)*float64(size)/(1<<20))
	}
	return d
}

// decide asks the rules, in order.
func (s *Store) decide(op objectstore.Op, keys ...string) verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	var v verdict
	for _, r := range s.mu.rules {
		if !r.matches(op, keys) {
			continue
		}
		r.matched++
		n := r.matched - r.Skip
		if n <= 0 || r.Every > 1 && n%r.Every != 0 || r.Count > 0 && r.acted >= r.Count {
			continue
		}
		if r.Probability > 0 && r.rng.Float64() >= r.Probability {
			continue
		}
		r.acted++
		if r.Latency != (Latency{}) {
			v.latencies = append(v.latencies, drawn{fixed: r.Latency.Sample(r.rng, 0), perMiB: r.Latency.PerMiB})
		}
		if v.rule == nil && (r.Error != None || r.Truncate) {
			v.rule = &r.Rule
		}
	}
	return v
}

// kind is the failure that befalls the call.
func (v verdict) kind() Kind {
	if v.rule == nil {
		return None
	}
	return v.rule.Error
}

// fault is the error of a failure without an effect.
func fault(op objectstore.Op, key string, k Kind) error {
	var class error
	switch k {
	case Unavailable:
		class = objectstore.ErrUnavailable
	case Throttled:
		class = objectstore.ErrThrottled
	case Conflict:
		class = objectstore.ErrConflict
	case Precondition:
		class = objectstore.ErrPreconditionFailed
		if op == objectstore.OpPut {
			class = objectstore.ErrExists
		}
	case NotFound:
		class = objectstore.ErrNotFound
	case Truncated:
		class = objectstore.ErrTruncated
	case Lost, Unknown, Late:
		return &objectstore.OutcomeUnknownError{Op: string(op), Key: key, Cause: fmt.Errorf("%w: no answer (%w)", objectstore.ErrUnavailable, ErrInjected)}
	}
	return fmt.Errorf("%s %s: %w (%w)", op, key, class, ErrInjected)
}

// wait passes a delay.
func (s *Store) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := s.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.Chan():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin decides about a call. It is refused if its context has ended or the store is closed. What a driver refuses before it sends
// anything is nobody's business here: a call with an invalid key is passed on as it is.
func (s *Store) begin(ctx context.Context, op objectstore.Op, keys ...string) (verdict, error) {
	if err := ctx.Err(); err != nil {
		return verdict{}, fmt.Errorf("%s: %w", op, err)
	}
	select {
	case <-s.closing:
		return verdict{}, fmt.Errorf("%s: %w: store is closed", op, objectstore.ErrUnavailable)
	default:
	}
	if op != objectstore.OpList && op != objectstore.OpDelete && objectstore.ValidateKey(keys[0]) != nil {
		return verdict{}, nil
	}
	return s.decide(op, keys...), nil
}

// read runs one of the three gets.
func (s *Store) read(ctx context.Context, op objectstore.Op, key string, get func() ([]byte, error)) ([]byte, error) {
	v, err := s.begin(ctx, op, key)
	if err != nil {
		return nil, err
	}
	if k := v.kind(); k != None {
		if err := s.wait(ctx, v.delay(0)); err != nil {
			return nil, fmt.Errorf("%s %s: %w", op, key, err)
		}
		return nil, fault(op, key, k)
	}
	body, err := get()
	if waitErr := s.wait(ctx, v.delay(len(body))); waitErr != nil {
		return nil, fmt.Errorf("%s %s: %w", op, key, waitErr)
	}
	if err == nil && v.rule != nil && v.rule.Truncate {
		body = body[:int(float64(len(body))*v.rule.Keep)]
	}
	return body, err
}

// Get implements objectstore.Store.
func (s *Store) Get(ctx context.Context, key string) (body []byte, info objectstore.Info, err error) {
	body, err = s.read(ctx, objectstore.OpGet, key, func() (b []byte, err error) {
		b, info, err = s.next.Get(ctx, key)
		return b, err
	})
	return body, info, err
}

// GetRange implements objectstore.Store.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	return s.read(ctx, objectstore.OpGetRange, key, func() ([]byte, error) { return s.next.GetRange(ctx, key, off, n) })
}

// GetTail implements objectstore.Store.
func (s *Store) GetTail(ctx context.Context, key string, n int64) (body []byte, info objectstore.Info, err error) {
	body, err = s.read(ctx, objectstore.OpGetTail, key, func() (b []byte, err error) {
		b, info, err = s.next.GetTail(ctx, key, n)
		return b, err
	})
	return body, info, err
}

// small runs an operation without a body and without an effect.
func (s *Store) small(ctx context.Context, op objectstore.Op, key string, do func() error) error {
	v, err := s.begin(ctx, op, key)
	if err != nil {
		return err
	}
	if err := s.wait(ctx, v.delay(0)); err != nil {
		return fmt.Errorf("%s %s: %w", op, key, err)
	}
	if k := v.kind(); k != None {
		return fault(op, key, k)
	}
	return do()
}

// List implements objectstore.Store.
func (s *Store) List(ctx context.Context, prefix, startAfter string, limit int) (page objectstore.Page, err error) {
	err = s.small(ctx, objectstore.OpList, prefix, func() (err error) {
		page, err = s.next.List(ctx, prefix, startAfter, limit)
		return err
	})
	return page, err
}

// Stat implements objectstore.Store.
func (s *Store) Stat(ctx context.Context, key string) (info objectstore.Info, err error) {
	err = s.small(ctx, objectstore.OpStat, key, func() (err error) {
		info, err = s.next.Stat(ctx, key)
		return err
	})
	return info, err
}

// PutIfAbsent implements objectstore.Store.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte, id string) (objectstore.Info, error) {
	return s.write(ctx, objectstore.OpPut, key, id, body, func(ctx context.Context, body []byte) (objectstore.Info, error) {
		return s.next.PutIfAbsent(ctx, key, body, id)
	})
}

// PutIfMatch implements objectstore.Store.
func (s *Store) PutIfMatch(ctx context.Context, key, etag string, body []byte, id string) (objectstore.Info, error) {
	return s.write(ctx, objectstore.OpPutMatch, key, id, body, func(ctx context.Context, body []byte) (objectstore.Info, error) {
		return s.next.PutIfMatch(ctx, key, etag, body, id)
	})
}

// write runs a write. A context that ends while the request is under way leaves its outcome unknown, as over a network.
func (s *Store) write(ctx context.Context, op objectstore.Op, key, id string, body []byte,
	put func(ctx context.Context, body []byte) (objectstore.Info, error)) (objectstore.Info, error) {
	if objectstore.ValidateID(id) != nil {
		return put(ctx, body)
	}
	v, err := s.begin(ctx, op, key)
	if err != nil {
		return objectstore.Info{}, err
	}
	if err := s.wait(ctx, v.delay(len(body))); err != nil {
		return objectstore.Info{}, &objectstore.OutcomeUnknownError{Op: string(op), Key: key, Cause: err}
	}
	switch k := v.kind(); k {
	case None:
		return put(ctx, body)
	case Lost:
		_, err := put(ctx, body)
		if oc := objectstore.OutcomeOf(err); oc == objectstore.Invalid || oc == objectstore.Unsupported {
			return objectstore.Info{}, err // found out before anything was sent
		}
		return objectstore.Info{}, fault(op, key, k)
	case Late:
		if !s.later(ctx, v.rule.LateBy, bytes.Clone(body), put) {
			return objectstore.Info{}, fmt.Errorf("%s %s: %w: store is closed", op, key, objectstore.ErrUnavailable)
		}
		return objectstore.Info{}, fault(op, key, k)
	default:
		return objectstore.Info{}, fault(op, key, k)
	}
}

// later lets a write take effect after a delay, whatever becomes of its caller; false if the store is closed.
func (s *Store) later(ctx context.Context, by time.Duration, body []byte, put func(ctx context.Context, body []byte) (objectstore.Info, error)) bool {
	ctx = context.WithoutCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	timer := s.clock.NewTimer(by)
	s.late.Go(func() {
		defer timer.Stop()
		select {
		case <-timer.Chan():
			_, _ = put(ctx, body) // nobody is left to be told
		case <-s.closing: // never had an effect, as its error allows
		}
	})
	return true
}

// Delete implements objectstore.Store.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	failAll := func(keys []string, err error) error {
		failed := objectstore.KeyErrors{}
		for _, key := range keys {
			failed[key] = err
		}
		return failed.OrNil()
	}
	v, err := s.begin(ctx, objectstore.OpDelete, keys...)
	if err != nil {
		return failAll(keys, err)
	}
	if err := s.wait(ctx, v.delay(0)); err != nil {
		return failAll(keys, fmt.Errorf("delete: %w", err))
	}
	k := v.kind()
	if k == None {
		return s.next.Delete(ctx, keys...)
	}
	if err := objectstore.ValidateDelete(keys); err != nil {
		return err
	}
	hit := func(key string) bool { return strings.HasPrefix(key, v.rule.Prefix) }
	send := keys
	if k != Lost {
		send = slices.DeleteFunc(slices.Clone(keys), hit)
	}
	err = s.next.Delete(ctx, send...)
	failed := objectstore.KeyErrors{}
	if err != nil && !errors.As(err, &failed) {
		return err
	}
	for _, key := range keys {
		if hit(key) && objectstore.OutcomeOf(failed[key]) != objectstore.Invalid {
			failed[key] = fault(objectstore.OpDelete, key, k)
		}
	}
	return failed.OrNil()
}

// Close gives up the effects that are yet to come, and closes the wrapped store.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.mu.closed = true
		s.mu.Unlock()
		close(s.closing)
		s.late.Wait()
		s.err = s.next.Close()
	})
	return s.err
}
