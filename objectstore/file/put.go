package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forebaymq/forebay/objectstore"
)

const (
	writeChunk = 1 << 20 // bytes between two looks at the context
	linkTries  = 5       // how often a put starts again because the object or folder vanished beneath it
)

// PutIfAbsent implements objectstore.Store.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte, id string) (objectstore.Info, error) {
	if err := s.enter(ctx, "put", key); err != nil {
		return objectstore.Info{}, err
	}
	defer s.busy.Done()
	if err := objectstore.ValidateID(id); err != nil {
		return objectstore.Info{}, fmt.Errorf("put %s: %w", key, err)
	}
	path, err := s.locate("put", key)
	if err != nil {
		return objectstore.Info{}, err
	}
	// A look first spares the write and its syncs when the answer is already there; the link below decides.
	if info, found, err := s.meet(ctx, key, path, body, id); found {
		return info, err
	}
	tmp, info, err := s.writeTemp(ctx, key, body, id, s.clock.Now())
	if err != nil {
		return objectstore.Info{}, err
	}
	defer func() { _ = s.ops.remove(tmp) }() // what stays is removed at Close, or when the next store opens
	return s.create(ctx, key, path, tmp, body, id, info)
}

// create links a written temp file to its final name and makes the link durable.
func (s *Store) create(ctx context.Context, key, path, tmp string, body []byte, id string, info objectstore.Info) (objectstore.Info, error) {
	for range linkTries {
		d, handle, err := s.openFolder(ctx, key)
		if err != nil {
			return objectstore.Info{}, unavailable("put", key, err)
		}
		if err := ctx.Err(); err != nil { // the last moment at which nothing has happened
			handle.Close()
			return objectstore.Info{}, fmt.Errorf("put %s: %w", key, err)
		}
		err = s.ops.link(tmp, path)
		if err == nil || sameFile(tmp, path) { // an error can come after the effect (a network file system)
			err = s.dirs.sync(ctx, d, handle)
			handle.Close()
			if err != nil {
				return objectstore.Info{}, &objectstore.OutcomeUnknownError{Op: "put", Key: key, Cause: fmt.Errorf("sync folder: %w", err)}
			}
			return info, nil
		}
		handle.Close()
		switch {
		case errors.Is(err, fs.ErrExist):
			if info, found, err := s.meet(ctx, key, path, body, id); found {
				return info, err
			}
		case errors.Is(err, fs.ErrNotExist): // the folder was removed: the next round makes it again
		default:
			return objectstore.Info{}, unavailable("put", key, err)
		}
	}
	return objectstore.Info{}, fmt.Errorf("put %s: %w: others delete it or its folder as fast as it is written", key, objectstore.ErrConflict)
}

// openFolder opens, and makes if need be, the folder of a valid key.
func (s *Store) openFolder(ctx context.Context, key string) (*dir, *os.File, error) {
	parent, _ := splitKey(key)
	if parent != "" {
		parent = dirPath(parent)
	}
	return s.dirs.open(ctx, parent)
}

// meet looks at the object that may already have the key. found says that the put is decided: info if it is the work of an earlier
// attempt of this writer, else an error.
func (s *Store) meet(ctx context.Context, key, path string, body []byte, id string) (info objectstore.Info, found bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return objectstore.Info{}, false, nil
	}
	if err != nil {
		return objectstore.Info{}, true, unavailable("put", key, err)
	}
	defer f.Close()
	info, err = s.describe(f, key)
	if err != nil {
		return objectstore.Info{}, true, unavailable("put", key, err)
	}
	ours := info.ID == id
	if info.ID == "" {
		if ours, err = sameContent(f, info.Size, body); err != nil {
			return objectstore.Info{}, true, unavailable("put", key, err)
		}
	}
	if !ours {
		return objectstore.Info{}, true, fmt.Errorf("put %s: %w: written by %q", key, objectstore.ErrExists, info.ID)
	}
	// The earlier attempt may have ended between its link and its sync.
	d, handle, err := s.openFolder(ctx, key)
	if err == nil {
		err = s.dirs.sync(ctx, d, handle)
		handle.Close()
	}
	if err != nil {
		return objectstore.Info{}, true, &objectstore.OutcomeUnknownError{Op: "put", Key: key, Cause: fmt.Errorf("sync folder: %w", err)}
	}
	return info, true, nil
}

// sameContent compares a file with a body.
func sameContent(f *os.File, size int64, body []byte) (bool, error) {
	if size != int64(len(body)) {
		return false, nil
	}
	buf := make([]byte, min(len(body), writeChunk))
	for off := 0; off < len(body); {
		want := body[off:min(len(body), off+len(buf))]
		got := buf[:len(want)]
		if _, err := f.ReadAt(got, int64(off)); err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if !bytes.Equal(got, want) {
			return false, nil
		}
		off += len(want)
	}
	return true, nil
}

// sameFile says whether two paths name one file.
func sameFile(a, b string) bool {
	sa, err := os.Lstat(a)
	if err != nil {
		return false
	}
	sb, err := os.Lstat(b)
	return err == nil && os.SameFile(sa, sb)
}

// writeTemp writes body, durably, to a new file in the temp folder, with the writer's ID and the time at which it counts as written.
// Errors are definite.
func (s *Store) writeTemp(ctx context.Context, key string, body []byte, id string, modified time.Time) (string, objectstore.Info, error) {
	select {
	case s.puts <- struct{}{}:
		defer func() { <-s.puts }()
	case <-ctx.Done():
		return "", objectstore.Info{}, fmt.Errorf("put %s: %w", key, ctx.Err())
	}
	tmp := s.temp.path()
	info, err := s.fill(ctx, tmp, key, body, id, modified)
	if err != nil {
		_ = s.ops.remove(tmp)
		return "", objectstore.Info{}, unavailable("put", key, err)
	}
	return tmp, info, nil
}

func (s *Store) fill(ctx context.Context, tmp, key string, body []byte, id string, modified time.Time) (objectstore.Info, error) {
	f, err := s.ops.create(tmp)
	if err != nil {
		return objectstore.Info{}, fmt.Errorf("make temp file: %w", err)
	}
	defer f.Close() // after the sync there is nothing left that closing could lose
	if s.ids {
		if err := setID(f, id); err != nil {
			return objectstore.Info{}, err
		}
	}
	for rest := body; len(rest) > 0; {
		if err := ctx.Err(); err != nil {
			return objectstore.Info{}, err
		}
		chunk := rest[:min(len(rest), writeChunk)]
		if _, err := s.ops.write(f, chunk); err != nil {
			return objectstore.Info{}, fmt.Errorf("write temp file: %w", err)
		}
		rest = rest[len(chunk):]
	}
	if err := os.Chtimes(tmp, time.Time{}, modified); err != nil {
		return objectstore.Info{}, err
	}
	if err := s.ops.syncFile(f); err != nil {
		return objectstore.Info{}, fmt.Errorf("sync temp file: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		return objectstore.Info{}, err
	}
	info := infoOf(key, st)
	if s.ids {
		info.ID = id
	}
	return info, nil
}

// PutIfMatch implements objectstore.Store. Comparing and replacing are one step by a lock that all stores on this root share;
// the new version is complete and durable in the temp folder before the lock is taken.
func (s *Store) PutIfMatch(ctx context.Context, key, etag string, body []byte, id string) (objectstore.Info, error) {
	if err := s.enter(ctx, "put", key); err != nil {
		return objectstore.Info{}, err
	}
	defer s.busy.Done()
	if err := objectstore.ValidateID(id); err != nil {
		return objectstore.Info{}, fmt.Errorf("put %s: %w", key, err)
	}
	path, err := s.locate("put", key)
	if err != nil {
		return objectstore.Info{}, err
	}
	old, err := match(key, path, etag)
	if err != nil {
		return objectstore.Info{}, err
	}
	modified := s.clock.Now()
	if !modified.After(old.Modified) { // ETags rest on this (see infoOf)
		modified = old.Modified.Add(time.Nanosecond)
	}
	tmp, info, err := s.writeTemp(ctx, key, body, id, modified)
	if err != nil {
		return objectstore.Info{}, err
	}
	defer func() { _ = s.ops.remove(tmp) }() // after the rename there is nothing to remove
	d, handle, err := s.openFolder(ctx, key)
	if err != nil {
		return objectstore.Info{}, unavailable("put", key, err)
	}
	defer handle.Close()
	if err := s.replace(ctx, key, path, etag, tmp); err != nil {
		return objectstore.Info{}, err
	}
	if err := s.dirs.sync(ctx, d, handle); err != nil {
		return objectstore.Info{}, &objectstore.OutcomeUnknownError{Op: "put", Key: key, Cause: fmt.Errorf("sync folder: %w", err)}
	}
	return info, nil
}

// replace puts tmp in the place of path if its ETag is still etag.
func (s *Store) replace(ctx context.Context, key, path, etag, tmp string) error {
	lock, err := waitLock(ctx, s.clock, s.matchLockPath(), unix.LOCK_EX)
	if err != nil {
		return unavailable("put", key, err)
	}
	defer lock.Close()
	if _, err := match(key, path, etag); err != nil {
		return err
	}
	want, err := os.Lstat(tmp)
	if err != nil {
		return unavailable("put", key, err)
	}
	if err := s.ops.rename(tmp, path); err != nil {
		if got, statErr := os.Lstat(path); statErr == nil && os.SameFile(want, got) {
			return nil // the error came after the effect
		}
		return unavailable("put", key, err)
	}
	return nil
}

// match checks that the object at path has the ETag.
func match(key, path, etag string) (objectstore.Info, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return objectstore.Info{}, classify("put", key, err)
	}
	info := infoOf(key, st)
	if info.ETag != etag {
		return objectstore.Info{}, fmt.Errorf("put %s: %w: version %s, not %s", key, objectstore.ErrPreconditionFailed, info.ETag, etag)
	}
	return info, nil
}

func (s *Store) matchLockPath() string { return filepath.Join(s.root, tempFolder, matchLock) }
