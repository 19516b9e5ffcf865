package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/forebaymq/forebay/objectstore"
)

// ledger watches the system calls and knows what a power cut would spare: the content of files that were synced, and entries of
// folders that were synced after the entry was made.
type ledger struct {
	sync.Mutex
	syncedFiles map[string]bool // temp paths
	pending     map[string]bool // entries (absolute paths) that a power cut would take
	dirSyncs    map[string]int
	faults      []string
}

func watch(o ops) (*ledger, ops) {
	l := &ledger{syncedFiles: map[string]bool{}, pending: map[string]bool{}, dirSyncs: map[string]int{}}
	w := o
	w.write = func(f *os.File, p []byte) (int, error) {
		l.Lock()
		delete(l.syncedFiles, f.Name())
		l.Unlock()
		return o.write(f, p)
	}
	w.syncFile = func(f *os.File) error {
		err := o.syncFile(f)
		l.Lock()
		defer l.Unlock()
		l.syncedFiles[f.Name()] = err == nil
		return err
	}
	// An entry is made and noted in one step: a sync by another writer that falls between the two would cover it without the ledger knowing.
	entry := func(from, to string, make func() error) error {
		l.Lock()
		defer l.Unlock()
		err := make()
		if err == nil {
			if from != "" && !l.syncedFiles[from] {
				l.faults = append(l.faults, to+" was made of a file that is not synced")
			}
			for dir := filepath.Dir(to); len(dir) > 1; dir = filepath.Dir(dir) {
				if from != "" && l.pending[dir] {
					l.faults = append(l.faults, to+" was made in a folder that is not durable: "+dir)
				}
			}
			l.pending[to] = true
		}
		return err
	}
	w.mkdir = func(path string) error { return entry("", path, func() error { return o.mkdir(path) }) }
	w.link = func(from, to string) error { return entry(from, to, func() error { return o.link(from, to) }) }
	w.rename = func(from, to string) error { return entry(from, to, func() error { return o.rename(from, to) }) }
	w.syncDir = func(d *os.File) error {
		l.Lock()
		var covered []string // what is there when the sync begins
		for p := range l.pending {
			if filepath.Dir(p) == d.Name() {
				covered = append(covered, p)
			}
		}
		l.dirSyncs[d.Name()]++
		l.Unlock()
		err := o.syncDir(d)
		l.Lock()
		defer l.Unlock()
		if err == nil {
			for _, p := range covered {
				delete(l.pending, p)
			}
		}
		return err
	}
	return l, w
}

// survives says why an object would not outlive a power cut now.
func (l *ledger) survives(root, key string) error {
	l.Lock()
	defer l.Unlock()
	p := filepath.Join(root, keyPath(key))
	for ; len(p) > len(filepath.Dir(root)); p = filepath.Dir(p) {
		if l.pending[p] {
			return fmt.Errorf("%s is acknowledged and %s is not durable", key, p)
		}
	}
	return nil
}

func TestAcknowledgedIsDurable(t *testing.T) {
	l, o := watch(realOps())
	root := filepath.Join(t.TempDir(), "new", "root")
	s := openAt(t, root, Options{ops: o})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 20 {
				key := fmt.Sprintf("a/b%d/c%d/%d-%d", i%2, i%3, i, w)
				info, err := s.PutIfAbsent(t.Context(), key, []byte(key), "w")
				if err == nil {
					err = l.survives(root, key)
				}
				if err == nil && i%4 == 0 {
					if _, err = s.PutIfMatch(t.Context(), key, info.ETag, []byte("more"), "w2"); err == nil {
						err = l.survives(root, key)
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	l.Lock()
	defer l.Unlock()
	for _, f := range l.faults {
		t.Error(f)
	}
	if n := l.dirSyncs[filepath.Join(root, "a.d")]; n < 1 || n > 16 {
		t.Errorf("folder a was synced %d times, for two folders in it that eight writers wanted", n)
	}
}

// TestRetrySyncs: an attempt that ended between its link and its sync left an object that is there and not durable; the retry that
// recognises it must not answer before it is.
func TestRetrySyncs(t *testing.T) {
	root := t.TempDir()
	o := realOps()
	failures := 1
	o.syncDir = func(d *os.File) error {
		if d.Name() == filepath.Join(root, "d.d") && failures > 0 {
			failures--
			return &os.PathError{Op: "fsync", Path: d.Name(), Err: syscall.ENOSPC}
		}
		return d.Sync()
	}
	l, o := watch(o)
	s := openAt(t, root, Options{ops: o})
	if _, err := s.PutIfAbsent(t.Context(), "d/k", []byte("body"), "w"); !objectstore.IsIndefinite(err) {
		t.Fatalf("put over a failing sync: %v, want unknown", err)
	}
	if err := l.survives(root, "d/k"); err == nil {
		t.Fatal("the object is durable already: the test shows nothing")
	}
	if _, err := s.PutIfAbsent(t.Context(), "d/k", []byte("body"), "w"); err != nil {
		t.Fatalf("retry: %v", err)
	}
	if err := l.survives(root, "d/k"); err != nil {
		t.Error(err)
	}
}

// TestPutsShareSync holds a folder's sync while others arrive: they must all be served by one more sync, and none before it.
func TestPutsShareSync(t *testing.T) {
	const others = 30
	o := realOps()
	var mu sync.Mutex
	syncs, links := 0, 0
	entered, release := make(chan struct{}), make(chan struct{})
	linked := make(chan struct{}, others+1)
	root := t.TempDir()
	dir := filepath.Join(root, "d.d")
	link := o.link
	o.link = func(from, to string) error {
		err := link(from, to)
		mu.Lock()
		links++
		mu.Unlock()
		linked <- struct{}{}
		return err
	}
	o.syncDir = func(d *os.File) error {
		if d.Name() == dir {
			mu.Lock()
			syncs++
			first := syncs == 1
			mu.Unlock()
			if first {
				close(entered)
				<-release
			}
		}
		return d.Sync()
	}
	s := openAt(t, root, Options{ops: o, ParallelPuts: others + 1})
	var wg sync.WaitGroup
	put := func(i int) {
		if _, err := s.PutIfAbsent(t.Context(), fmt.Sprintf("d/%d", i), nil, "w"); err != nil {
			t.Error(err)
		}
	}
	wg.Go(func() { put(0) })
	<-linked
	<-entered
	for i := range others {
		wg.Go(func() { put(i + 1) })
	}
	for range others {
		<-linked
	}
	d := s.dirs.get("d.d")
	for waiting := false; !waiting; { // the last of them has linked; see it join
		d.mu.Lock()
		waiting = d.mu.next != nil
		d.mu.Unlock()
	}
	close(release)
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	// Those that linked and had not joined when the first sync ended may need one each in the worst case; in practice it is 2 or 3.
	if syncs < 2 || syncs > others/2 {
		t.Errorf("%d syncs for %d puts, of which %d waited together", syncs, links, others)
	}
}

// TestFailedCalls fails each system call of a put in turn. Before the link a failure is definite and leaves nothing; after it, it is
// indefinite, and a retry with the same ID settles it.
func TestFailedCalls(t *testing.T) {
	boom := func(errno syscall.Errno) error { return &os.PathError{Op: "test", Path: "x", Err: errno} }
	onDir := func(root string, errno syscall.Errno) func(*os.File) error {
		return func(d *os.File) error {
			if d.Name() == filepath.Join(root, "d.d") {
				return boom(errno)
			}
			return d.Sync()
		}
	}
	for _, tc := range []struct {
		name       string
		break_     func(o *ops, root string)
		indefinite bool
		text       string
	}{
		{"create EMFILE", func(o *ops, _ string) {
			o.create = func(string) (*os.File, error) { return nil, boom(syscall.EMFILE) }
		}, false, "too many open files"},
		{"create EACCES", func(o *ops, _ string) {
			o.create = func(string) (*os.File, error) { return nil, boom(syscall.EACCES) }
		}, false, "may not write"},
		{"write ENOSPC", func(o *ops, _ string) {
			o.write = func(f *os.File, p []byte) (int, error) {
				n, _ := f.Write(p[:len(p)/2])
				return n, boom(syscall.ENOSPC)
			}
		}, false, "disk is full"},
		{"sync of the file EIO", func(o *ops, _ string) { o.syncFile = func(*os.File) error { return boom(syscall.EIO) } }, false, "I/O error"},
		{"mkdir EROFS", func(o *ops, _ string) { o.mkdir = func(string) error { return boom(syscall.EROFS) } }, false, "read-only"},
		{"open of the folder ENFILE", func(o *ops, root string) {
			real := o.openDir
			o.openDir = func(p string) (*os.File, error) {
				if p == filepath.Join(root, "d.d") {
					return nil, boom(syscall.ENFILE)
				}
				return real(p)
			}
		}, false, "too many open files"},
		{"sync of the root EIO", func(o *ops, root string) {
			o.syncDir = func(d *os.File) error {
				if d.Name() == root {
					return boom(syscall.EIO)
				}
				return d.Sync()
			}
		}, false, "I/O error"},
		{"link ENOSPC", func(o *ops, _ string) { o.link = func(string, string) error { return boom(syscall.ENOSPC) } }, false, "disk is full"},
		{"sync of the folder ENOSPC", func(o *ops, root string) { o.syncDir = onDir(root, syscall.ENOSPC) }, true, "no space left"},
		{"sync of the folder EIO", func(o *ops, root string) { o.syncDir = onDir(root, syscall.EIO) }, true, "input/output error"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			o := realOps()
			tc.break_(&o, root)
			s := openAt(t, root, Options{ops: o})
			_, err := s.PutIfAbsent(t.Context(), "d/k", []byte("body"), "w")
			if err == nil || objectstore.IsIndefinite(err) != tc.indefinite || !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("put: %v (indefinite: %v), want %q, indefinite: %v", err, objectstore.IsIndefinite(err), tc.text, tc.indefinite)
			}
			if !tc.indefinite && !errors.Is(err, objectstore.ErrUnavailable) {
				t.Errorf("put: %v is not ErrUnavailable", err)
			}
			left, err := filepath.Glob(filepath.Join(s.temp.dir, "[0-9a-f]*"))
			if err != nil || len(left) != 0 {
				t.Errorf("temp files left: %q, %v", left, err)
			}
			whole := openAt(t, root, Options{})
			_, err = whole.Stat(t.Context(), "d/k")
			if tc.indefinite && err != nil || !tc.indefinite && !errors.Is(err, objectstore.ErrNotFound) {
				t.Errorf("stat after: %v", err)
			}
			if _, err := whole.PutIfAbsent(t.Context(), "d/k", []byte("body"), "w"); err != nil {
				t.Errorf("put with the same ID on a healthy disk: %v", err)
			}
		})
	}
}

// TestFolderBrokenByIO: once a folder's sync has failed with an I/O error, a later one may succeed without having written what the
// first dropped; so neither a retry nor another put there may be acknowledged by this process.
func TestFolderBrokenByIO(t *testing.T) {
	root := t.TempDir()
	o := realOps()
	fail := true
	o.syncDir = func(d *os.File) error {
		if fail && d.Name() == filepath.Join(root, "bad.d") {
			fail = false
			return &os.PathError{Op: "fsync", Path: d.Name(), Err: syscall.EIO}
		}
		return d.Sync()
	}
	s := openAt(t, root, Options{ops: o})
	if _, err := s.PutIfAbsent(t.Context(), "bad/k", nil, "w"); !objectstore.IsIndefinite(err) {
		t.Fatalf("put over a failing sync: %v", err)
	}
	if _, err := s.PutIfAbsent(t.Context(), "bad/k", nil, "w"); !objectstore.IsIndefinite(err) {
		t.Errorf("retry: %v, want still unknown", err)
	}
	if _, err := s.PutIfAbsent(t.Context(), "bad/other", nil, "w"); !errors.Is(err, objectstore.ErrUnavailable) || objectstore.IsIndefinite(err) {
		t.Errorf("another put there: %v, want ErrUnavailable, before any effect", err)
	}
	if _, err := s.PutIfAbsent(t.Context(), "good/k", nil, "w"); err != nil {
		t.Errorf("put elsewhere: %v", err)
	}
}

// TestLinkErrorAfterEffect is what a network file system does when the answer to a link is lost.
func TestLinkErrorAfterEffect(t *testing.T) {
	o := realOps()
	link := o.link
	o.link = func(from, to string) error {
		if err := link(from, to); err != nil {
			return err
		}
		return &os.LinkError{Op: "link", Old: from, New: to, Err: syscall.EIO}
	}
	s := openAt(t, t.TempDir(), Options{ops: o})
	if _, err := s.PutIfAbsent(t.Context(), "k", []byte("x"), "w"); err != nil {
		t.Errorf("put: %v, want success: the link is there", err)
	}
}

// TestFolderRemoved: somebody removes a folder that the store takes for durable, before or during a put.
func TestFolderRemoved(t *testing.T) {
	root := t.TempDir()
	o := realOps()
	link, removals := o.link, 0
	o.link = func(from, to string) error {
		if removals < 2 {
			removals++
			if err := os.RemoveAll(filepath.Join(root, "a.d")); err != nil {
				t.Error(err)
			}
		}
		return link(from, to)
	}
	l, o := watch(o)
	s := openAt(t, root, Options{ops: o})
	if _, err := s.PutIfAbsent(t.Context(), "a/b/one", nil, "w"); err != nil {
		t.Errorf("put while the folder goes: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(root, "a.d")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutIfAbsent(t.Context(), "a/b/two", nil, "w"); err != nil {
		t.Errorf("put after the folder went: %v", err)
	}
	if err := l.survives(root, "a/b/two"); err != nil {
		t.Error(err)
	}
}
