package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"github.com/forebaymq/forebay/objectstore"
)

// Get implements objectstore.Store.
func (s *Store) Get(ctx context.Context, key string) ([]byte, objectstore.Info, error) {
	return s.read(ctx, "get", key, func(int64) (int64, int64, error) { return 0, -1, nil })
}

// GetRange implements objectstore.Store.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if err := objectstore.ValidateRange(off, n); err != nil {
		return nil, fmt.Errorf("get range %s: %w", key, err)
	}
	body, _, err := s.read(ctx, "get range", key, func(size int64) (int64, int64, error) {
		if off >= size {
			return 0, 0, fmt.Errorf("%w: offset %d, size %d", objectstore.ErrInvalidRange, off, size)
		}
		return off, min(n, size-off), nil
	})
	return body, err
}

// GetTail implements objectstore.Store.
func (s *Store) GetTail(ctx context.Context, key string, n int64) ([]byte, objectstore.Info, error) {
	if err := objectstore.ValidateRange(0, n); err != nil {
		return nil, objectstore.Info{}, fmt.Errorf("get tail %s: %w", key, err)
	}
	return s.read(ctx, "get tail", key, func(size int64) (int64, int64, error) {
		return size - min(n, size), -1, nil
	})
}

// Stat implements objectstore.Store.
func (s *Store) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	_, info, err := s.read(ctx, "stat", key, func(int64) (int64, int64, error) { return 0, 0, nil })
	return info, err
}

// read opens the object once, so that the bytes and the Info are of one version. pick chooses offset and length from the size; a
// negative length means all that follows.
func (s *Store) read(ctx context.Context, op, key string, pick func(size int64) (off, n int64, err error)) ([]byte, objectstore.Info, error) {
	if err := s.enter(ctx, op, key); err != nil {
		return nil, objectstore.Info{}, err
	}
	defer s.busy.Done()
	path, err := s.locate(op, key)
	if err != nil {
		return nil, objectstore.Info{}, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, objectstore.Info{}, classify(op, key, err)
	}
	defer f.Close()
	info, err := s.describe(f, key)
	if err != nil {
		return nil, objectstore.Info{}, classify(op, key, err)
	}
	off, n, err := pick(info.Size)
	if err != nil {
		return nil, objectstore.Info{}, fmt.Errorf("%s %s: %w", op, key, err)
	}
	if n < 0 {
		n = info.Size - off
	}
	if n == 0 {
		return []byte{}, info, nil
	}
	body := make([]byte, n)
	if got, err := f.ReadAt(body, off); got < len(body) {
		if errors.Is(err, io.EOF) {
			return nil, objectstore.Info{}, fmt.Errorf("%s %s: %w: %d bytes of %d", op, key, objectstore.ErrTruncated, got, n)
		}
		return nil, objectstore.Info{}, classify(op, key, err)
	}
	return body, info, nil
}

// describe gives the Info of an open object.
func (s *Store) describe(f *os.File, key string) (objectstore.Info, error) {
	st, err := f.Stat()
	if err != nil {
		return objectstore.Info{}, err
	}
	if !st.Mode().IsRegular() {
		return objectstore.Info{}, fmt.Errorf("%s is not a file: something else writes in this folder", f.Name())
	}
	info := infoOf(key, st)
	if s.ids {
		if info.ID, err = getID(f); err != nil {
			return objectstore.Info{}, err
		}
	}
	return info, nil
}

// infoOf is the Info without the ID.
//
// The ETag is inode, time of change and size. Versions of one key never share it: a replacement is another inode as long as the old one
// exists, and PutIfMatch sets a later time than the version it replaces had.
func infoOf(key string, st fs.FileInfo) objectstore.Info {
	etag := strconv.AppendUint(nil, inodeOf(st), 36)
	etag = append(etag, '-')
	etag = strconv.AppendInt(etag, st.ModTime().UnixNano(), 36)
	etag = append(etag, '-')
	etag = strconv.AppendInt(etag, st.Size(), 36)
	return objectstore.Info{Key: key, Size: st.Size(), Modified: st.ModTime(), ETag: string(etag)}
}
