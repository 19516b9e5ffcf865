package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"syscall"
)

// maxKnownDirs bounds the memory of which folders are known to be durable. Forgetting one costs a sync of its parent.
const maxKnownDirs = 1 << 16

// dirs makes folders and syncs them, with as few syncs as possible.
type dirs struct {
	root string // absolute
	ops  ops
	mu   struct {
		sync.Mutex
		known map[string]*dir // by slash-separated path below the root; "" is the root
	}
}

// dir is one folder. What waits for its next sync is a batch; whoever holds the turn runs it for all.
type dir struct {
	rel  string
	turn chan struct{} // capacity 1; full while a sync runs
	mu   struct {
		sync.Mutex
		durable bool   // its entry in the parent is synced, and the parents' entries are
		next    *batch // waits for a sync that has not begun; nil if nobody waits
		broken  error  // a sync failed in a way that a later success would hide
	}
}

type batch struct {
	done chan struct{}
	err  error // set before done is closed
}

func newDirs(root string, o ops) *dirs {
	d := &dirs{root: root, ops: o}
	d.mu.known = map[string]*dir{"": newDir("")}
	d.mu.known[""].mu.durable = true
	return d
}

func newDir(rel string) *dir { return &dir{rel: rel, turn: make(chan struct{}, 1)} }

func (ds *dirs) abs(rel string) string { return filepath.Join(ds.root, filepath.FromSlash(rel)) }

func (ds *dirs) get(rel string) *dir {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d := ds.mu.known[rel]; d != nil {
		return d
	}
	if len(ds.mu.known) >= maxKnownDirs {
		ds.shrinkLocked()
	}
	d := newDir(rel)
	ds.mu.known[rel] = d
	return d
}

// shrinkLocked forgets the folders of which nothing must be remembered. Callers that hold one may go on using it.
func (ds *dirs) shrinkLocked() {
	for rel, d := range ds.mu.known {
		d.mu.Lock()
		if rel != "" && d.mu.broken == nil {
			delete(ds.mu.known, rel)
		}
		d.mu.Unlock()
	}
}

// open makes a folder and its parents if need be, durably, and gives it with an open handle. The handle is opened before a put
// has any effect, so that running out of handles cannot make its outcome unknown. Errors are definite.
func (ds *dirs) open(ctx context.Context, rel string) (*dir, *os.File, error) {
	d := ds.get(rel)
	d.mu.Lock()
	durable, broken := d.mu.durable, d.mu.broken
	d.mu.Unlock()
	if broken != nil {
		return nil, nil, fmt.Errorf("folder %s takes no writes after a failed sync: %w", rel, broken)
	}
	if durable {
		f, err := ds.ops.openDir(ds.abs(rel))
		if !errors.Is(err, fs.ErrNotExist) {
			return d, f, err
		}
		d.mu.Lock()
		d.mu.durable = false // somebody removed it, against the rules: make it again
		d.mu.Unlock()
	}
	if rel == "" {
		return nil, nil, fmt.Errorf("root folder %s is gone", ds.root)
	}
	parentRel := path.Dir(rel)
	if parentRel == "." {
		parentRel = ""
	}
	parent, pf, err := ds.open(ctx, parentRel)
	if err != nil {
		return nil, nil, err
	}
	defer pf.Close()
	if err := ds.ops.mkdir(ds.abs(rel)); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, nil, fmt.Errorf("make folder: %w", err)
	}
	f, err := ds.ops.openDir(ds.abs(rel))
	if err != nil {
		return nil, nil, fmt.Errorf("open folder: %w", err)
	}
	// Even if another process made the folder, it may not have synced the parent yet, or may have died before it did.
	if err := ds.sync(ctx, parent, pf); err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("sync folder: %w", err)
	}
	d.mu.Lock()
	d.mu.durable = true
	d.mu.Unlock()
	return d, f, nil
}

// sync returns when a sync of the folder that began after the call has ended. Concurrent callers share one.
//
// A sync that is already running does not count: it may have looked at the folder before our entry was in it. So every caller
// joins the batch that waits, and the first to get the turn after that takes the whole batch. A caller whose batch was taken
// by another finds it done.
func (ds *dirs) sync(ctx context.Context, d *dir, handle *os.File) error {
	d.mu.Lock()
	if d.mu.next == nil {
		d.mu.next = &batch{done: make(chan struct{})}
	}
	b := d.mu.next
	d.mu.Unlock()

	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	case d.turn <- struct{}{}:
	}
	defer func() { <-d.turn }()
	d.mu.Lock()
	if d.mu.next != b { // whoever took it has finished, since it held the turn
		d.mu.Unlock()
		return b.err
	}
	d.mu.next = nil
	broken := d.mu.broken
	d.mu.Unlock()

	b.err = broken
	if broken == nil {
		b.err = ds.ops.syncDir(handle)
	}
	if errors.Is(b.err, syscall.EIO) {
		d.mu.Lock()
		d.mu.broken = b.err
		d.mu.Unlock()
	}
	close(b.done)
	return b.err
}
