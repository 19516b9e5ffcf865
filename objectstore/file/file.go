package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/jonboulle/clockwork"

	"github.com/forebaymq/forebay/objectstore"
)

var _ objectstore.Store = (*Store)(nil)

// DefaultParallelPuts is how many puts write at once. More gain nothing on one disk and cost memory for dirty pages.
const DefaultParallelPuts = 16

// Options of Open. The zero value is the default.
type Options struct {
	// ParallelPuts is how many puts may write at once (the others wait for their turn). Default: DefaultParallelPuts.
	ParallelPuts int
	// ContentIDs recognises a writer by the content of the object even where extended attributes would work. Info.ID is then empty.
	ContentIDs bool
	// Clock gives Info.Modified and paces the wait for another process's lock. Default: the real clock.
	Clock clockwork.Clock
	// Logger is told what Open removes. Default: discards.
	Logger *slog.Logger

	ops ops // set by tests
}

// WithDefaults fills what is not set.
func (o Options) WithDefaults() Options {
	if o.ParallelPuts == 0 {
		o.ParallelPuts = DefaultParallelPuts
	}
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.ops.create == nil {
		o.ops = realOps()
	}
	return o
}

// Validate reports what is wrong.
func (o Options) Validate() error {
	if o.ParallelPuts < 0 {
		return fmt.Errorf("options.ParallelPuts: %d, want at least 1", o.ParallelPuts)
	}
	return nil
}

// Store is an object store in a folder.
type Store struct {
	root  string // absolute
	ops   ops
	clock clockwork.Clock
	temp  *temp
	dirs  *dirs
	ids   bool          // IDs are kept in extended attributes
	puts  chan struct{} // a token for each put that may write
	mu    struct {
		sync.Mutex
		closed bool
	}
	busy      sync.WaitGroup // operations that run; added to under mu
	closeOnce sync.Once
	closeErr  error
}

// Open opens the store in folder root, which is made if need be.
func Open(root string, o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("open file store: %w", err)
	}
	o = o.WithDefaults()
	s, err := open(root, o)
	if err != nil {
		if hint := hintOf(err); hint != "" {
			return nil, fmt.Errorf("open file store %s: %w: %s: %w", root, objectstore.ErrUnavailable, hint, err)
		}
		return nil, fmt.Errorf("open file store %s: %w", root, err)
	}
	return s, nil
}

func open(root string, o Options) (*Store, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if err := makeRoot(root, o.ops); err != nil {
		return nil, err
	}
	t, err := openTemp(root, o.Logger)
	if err != nil {
		return nil, err
	}
	ids, err := probe(t)
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return &Store{
		root: root, ops: o.ops, clock: o.Clock, temp: t, dirs: newDirs(root, o.ops), ids: ids && !o.ContentIDs,
		puts: make(chan struct{}, o.ParallelPuts),
	}, nil
}

// makeRoot makes the root and what is missing above it, each synced in its parent.
func makeRoot(root string, o ops) error {
	if st, err := os.Stat(root); err == nil {
		if !st.IsDir() {
			return fmt.Errorf("%s is not a folder", root)
		}
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(root)
	if err := makeRoot(parent, o); err != nil {
		return err
	}
	if err := o.mkdir(root); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := o.openDir(parent)
	if err != nil {
		return err
	}
	defer d.Close()
	return o.syncDir(d)
}

// probe checks what the file system can do, in the temp folder. ids says whether it keeps extended attributes.
func probe(t *temp) (ids bool, err error) {
	if _, err := os.Lstat(filepath.Join(t.dir, strings.ToUpper(ownerLock))); err == nil {
		return false, errors.New("the file system ignores case, so different keys would be one file")
	}
	from, to := t.path(), t.path()
	f, err := os.OpenFile(from, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if err := setID(f, "probe"); err == nil {
		got, err := getID(f)
		ids = err == nil && got == "probe"
	}
	if err := os.Link(from, to); err != nil {
		return false, fmt.Errorf("the file system has no hard links, by which objects are created: %w", err)
	}
	if err := os.Link(from, to); !errors.Is(err, fs.ErrExist) {
		return false, fmt.Errorf("the file system makes a link over a file that exists (%w), so objects could be overwritten", err)
	}
	return ids, errors.Join(os.Remove(from), os.Remove(to))
}

// KeepsIDs says whether the writers' IDs are kept with the objects (see Options.ContentIDs and the package comment).
func (s *Store) KeepsIDs() bool { return s.ids }

// enter starts an operation; the caller must call s.busy.Done if it is not an error.
func (s *Store) enter(ctx context.Context, op, key string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", op, key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return fmt.Errorf("%s %s: %w: store is closed", op, key, objectstore.ErrUnavailable)
	}
	s.busy.Add(1)
	return nil
}

// locate gives the absolute path of a key.
func (s *Store) locate(op, key string) (string, error) {
	if err := objectstore.ValidateKey(key); err != nil {
		return "", fmt.Errorf("%s: %w", op, err)
	}
	rel := keyPath(key)
	if rel == "" {
		return "", fmt.Errorf("%s: %w %q: an element is longer than a file name", op, objectstore.ErrInvalidKey, key)
	}
	return filepath.Join(s.root, filepath.FromSlash(rel)), nil
}

// Close waits for the operations that run, and gives up the temp folder. Repeated calls give the first answer.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.mu.Lock()
		s.mu.closed = true
		s.mu.Unlock()
		s.busy.Wait()
		if err := s.temp.close(); err != nil {
			s.closeErr = fmt.Errorf("close file store: %w", err)
		}
	})
	return s.closeErr
}
