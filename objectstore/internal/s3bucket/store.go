package s3bucket

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/jonboulle/clockwork"

	"github.com/forebaymq/forebay/objectstore"
)

var _ objectstore.Store = (*Store)(nil)

// Options of New.
type Options struct {
	// Client makes the requests. Required.
	Client Client
	// Rules reads and writes the bucket's lifecycle rules. Required.
	Rules Ruler
	// Bucket names the bucket in errors. Required.
	Bucket string
	// Prefix is put before every key: "" or a valid key followed by a slash.
	Prefix string
	// Remedy says in the error of an absent bucket what to do about it.
	Remedy string
	// Unordered says that the bucket does not list in the order of keys and knows no start (S3's directory buckets).
	Unordered bool
	// Release is called once by Close. Default: nothing.
	Release func()
	// Clock gives Info.Modified where the store does not say. Default: the real clock.
	Clock clockwork.Clock
}

// Validate reports every fault by field.
func (o Options) Validate() error {
	var errs []error
	if o.Client == nil {
		errs = append(errs, errors.New("options.Client: is required"))
	}
	if o.Rules == nil {
		errs = append(errs, errors.New("options.Rules: is required"))
	}
	if o.Bucket == "" {
		errs = append(errs, errors.New("options.Bucket: is required"))
	}
	if err := ValidatePrefix(o.Prefix); err != nil {
		errs = append(errs, fmt.Errorf("options.Prefix: %w", err))
	}
	return errors.Join(errs...)
}

// ValidatePrefix checks a prefix of all keys.
func ValidatePrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	key, found := strings.CutSuffix(prefix, "/")
	if !found {
		return fmt.Errorf("%q does not end in a slash", prefix)
	}
	return objectstore.ValidateKey(key)
}

// Store is a bucket, or a prefix of one.
type Store struct {
	client Client
	opt    Options
	mu     struct {
		sync.Mutex
		closed bool
		window *window // of the last list, for an unordered bucket
	}
}

// New makes a store. It makes no request.
func New(o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	return &Store{client: o.Client, opt: o}, nil
}

// begin is what every operation checks first.
func (s *Store) begin(ctx context.Context, what, key string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", what, key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return fmt.Errorf("%s %s: %w: store is closed", what, key, objectstore.ErrUnavailable)
	}
	return nil
}

// full gives the store's key, or ErrInvalidKey.
func (s *Store) full(what, key string) (string, error) {
	if err := objectstore.ValidateKey(key); err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	if n := len(s.opt.Prefix) + len(key); n > objectstore.MaxKeyBytes {
		return "", fmt.Errorf("%s: %w: %d bytes with the prefix of the store, at most %d", what, objectstore.ErrInvalidKey, n, objectstore.MaxKeyBytes)
	}
	return s.opt.Prefix + key, nil
}

func (s *Store) noBucket() error {
	if s.opt.Remedy == "" {
		return fmt.Errorf("bucket %q does not exist", s.opt.Bucket)
	}
	return fmt.Errorf("bucket %q does not exist: %s", s.opt.Bucket, s.opt.Remedy)
}

// Close makes every later operation ErrUnavailable, and closes the connections.
func (s *Store) Close() error {
	s.mu.Lock()
	was := s.mu.closed
	s.mu.closed = true
	s.mu.window = nil
	s.mu.Unlock()
	if !was && s.opt.Release != nil {
		s.opt.Release()
	}
	return nil
}
