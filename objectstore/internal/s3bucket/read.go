package s3bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/forebaymq/forebay/objectstore"
)

const (
	// maxObject bounds what one read allocates. No object of Forebay is near it.
	maxObject = 4 << 30
	// beyond is an offset and a length that no object of any store reaches. Larger numbers are cut to it: not all stores take 64 bits.
	beyond = 1 << 50
)

// Get implements objectstore.Store.
func (s *Store) Get(ctx context.Context, key string) ([]byte, objectstore.Info, error) {
	r, err := s.open(ctx, objectstore.OpGet, "get", key, "")
	if err != nil {
		return nil, objectstore.Info{}, err
	}
	defer r.obj.Body.Close()
	if r.obj.ContentRange != "" {
		return nil, objectstore.Info{}, fmt.Errorf("get %s: %w: asked for all, got %q", key, objectstore.ErrTruncated, r.obj.ContentRange)
	}
	body, err := r.read(ctx, r.obj.Size)
	if err != nil {
		return nil, objectstore.Info{}, err
	}
	if want := r.obj.CRC; want != "" && checksum(body) != want {
		return nil, objectstore.Info{}, fmt.Errorf("get %s: %w: its checksum differs, the bytes were damaged on the way or in the store", key, objectstore.ErrTruncated)
	}
	return body, info(key, r.obj.Meta), nil
}

// GetRange implements objectstore.Store.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if err := s.begin(ctx, "get range", key); err != nil {
		return nil, err
	}
	if err := objectstore.ValidateKey(key); err != nil {
		return nil, fmt.Errorf("get range: %w", err)
	}
	if err := objectstore.ValidateRange(off, n); err != nil {
		return nil, fmt.Errorf("get range %s: %w", key, err)
	}
	off, n = min(off, beyond), min(n, beyond)
	r, err := s.open(ctx, objectstore.OpGetRange, "get range", key, fmt.Sprintf("bytes=%d-%d", off, off+n-1))
	if err != nil {
		return nil, err
	}
	defer r.obj.Body.Close()
	first, last, size, err := r.extent()
	if err != nil {
		return nil, err
	}
	want := min(n, size-off)
	if want <= 0 {
		return nil, fmt.Errorf("get range %s: %w: offset %d, size %d", key, objectstore.ErrInvalidRange, off, size)
	}
	if first != off || last-first+1 != want {
		return nil, fmt.Errorf("get range %s: %w: asked for %d bytes from %d of %d, got those from %d to %d", key, objectstore.ErrTruncated, n, off, size, first, last)
	}
	return r.read(ctx, want)
}

// GetTail implements objectstore.Store. One request; an empty object, which has no range, takes a second one.
func (s *Store) GetTail(ctx context.Context, key string, n int64) ([]byte, objectstore.Info, error) {
	if err := s.begin(ctx, "get tail", key); err != nil {
		return nil, objectstore.Info{}, err
	}
	if err := objectstore.ValidateKey(key); err != nil {
		return nil, objectstore.Info{}, fmt.Errorf("get tail: %w", err)
	}
	if err := objectstore.ValidateRange(0, n); err != nil {
		return nil, objectstore.Info{}, fmt.Errorf("get tail %s: %w", key, err)
	}
	r, err := s.open(ctx, objectstore.OpGetTail, "get tail", key, "bytes=-"+strconv.FormatInt(min(n, beyond), 10))
	if errors.Is(err, objectstore.ErrInvalidRange) {
		found, statErr := s.Stat(ctx, key)
		if statErr == nil && found.Size == 0 {
			return []byte{}, found, nil
		}
		return nil, objectstore.Info{}, errors.Join(err, statErr)
	}
	if err != nil {
		return nil, objectstore.Info{}, err
	}
	defer r.obj.Body.Close()
	first, last, size, err := r.extent()
	if err != nil {
		return nil, objectstore.Info{}, err
	}
	want := min(n, size)
	if got := last - first + 1; got != want || last != size-1 {
		return nil, objectstore.Info{}, fmt.Errorf("get tail %s: %w: asked for the last %d bytes of %d, got those from %d to %d", key, objectstore.ErrTruncated, n, size, first, last)
	}
	body, err := r.read(ctx, want)
	if err != nil {
		return nil, objectstore.Info{}, err
	}
	found := info(key, r.obj.Meta)
	found.Size = size
	return body, found, nil
}

// Stat implements objectstore.Store.
func (s *Store) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	if err := s.begin(ctx, "stat", key); err != nil {
		return objectstore.Info{}, err
	}
	full, err := s.full("stat", key)
	if err != nil {
		return objectstore.Info{}, err
	}
	callCtx, call := begin(ctx, objectstore.OpStat)
	m, err := s.client.Head(callCtx, full)
	if err != nil {
		return objectstore.Info{}, s.failure(ctx, call, "stat", key, err)
	}
	if m.Size < 0 {
		return objectstore.Info{}, fmt.Errorf("stat %s: %w: the store does not say the size", key, objectstore.ErrTruncated)
	}
	return info(key, m), nil
}

func info(key string, m Meta) objectstore.Info {
	return objectstore.Info{Key: key, Size: m.Size, Modified: m.Modified, ETag: m.ETag, ID: unescapeID(m.ID)}
}

// reading is a read whose answer has begun.
type reading struct {
	s         *Store
	call      *Call
	what, key string
	obj       *Object
}

func (s *Store) open(ctx context.Context, op objectstore.Op, what, key, byteRange string) (*reading, error) {
	if err := s.begin(ctx, what, key); err != nil {
		return nil, err
	}
	full, err := s.full(what, key)
	if err != nil {
		return nil, err
	}
	callCtx, call := begin(ctx, op)
	obj, err := s.client.Get(callCtx, full, byteRange)
	if err != nil {
		return nil, s.failure(ctx, call, what, key, err)
	}
	return &reading{s: s, call: call, what: what, key: key, obj: obj}, nil
}

// extent gives the first and last byte that the answer carries, and the size of the object. An answer of all is one of 0 to size-1,
// from a store that ignores ranges or for an object that is no larger.
func (r *reading) extent() (first, last, size int64, err error) {
	if r.obj.ContentRange == "" {
		if r.call.seen().status == http.StatusPartialContent || r.obj.Size < 0 {
			return 0, 0, 0, fmt.Errorf("%s %s: %w: the answer does not say which bytes it has", r.what, r.key, objectstore.ErrTruncated)
		}
		return 0, r.obj.Size - 1, r.obj.Size, nil
	}
	if first, last, size, ok := parseContentRange(r.obj.ContentRange); ok {
		return first, last, size, nil
	}
	if r.obj.Size == 0 && strings.HasSuffix(r.obj.ContentRange, "/0") {
		return 0, -1, 0, nil // MinIO's answer for the tail of an empty object: bytes 0--1/0
	}
	return 0, 0, 0, fmt.Errorf("%s %s: %w: Content-Range is %q", r.what, r.key, objectstore.ErrTruncated, r.obj.ContentRange)
}

// parseContentRange takes "bytes 0-9/100".
func parseContentRange(s string) (first, last, size int64, ok bool) {
	rest, found := strings.CutPrefix(s, "bytes ")
	span, total, found2 := strings.Cut(rest, "/")
	from, to, found3 := strings.Cut(span, "-")
	if !found || !found2 || !found3 {
		return 0, 0, 0, false
	}
	for _, n := range []struct {
		text string
		to   *int64
	}{{from, &first}, {to, &last}, {total, &size}} {
		v, err := strconv.ParseInt(n.text, 10, 64)
		if err != nil || v < 0 {
			return 0, 0, 0, false
		}
		*n.to = v
	}
	return first, last, size, first <= last && last < size
}

// read reads exactly n bytes, and the end after them, which lets the connection be used again.
func (r *reading) read(ctx context.Context, n int64) ([]byte, error) {
	if n < 0 || n > maxObject {
		return nil, fmt.Errorf("%s %s: the store announces %d bytes, want 0 to %d", r.what, r.key, n, int64(maxObject))
	}
	if r.obj.Size >= 0 && r.obj.Size != n {
		return nil, fmt.Errorf("%s %s: %w: %d bytes were to come, the answer has %d", r.what, r.key, objectstore.ErrTruncated, n, r.obj.Size)
	}
	body := make([]byte, n)
	got, err := io.ReadFull(r.obj.Body, body)
	if err == nil {
		var extra [1]byte
		m, endErr := io.ReadFull(r.obj.Body, extra[:])
		if m == 0 && errors.Is(endErr, io.EOF) {
			return body, nil
		}
		if err = endErr; m > 0 {
			err = errors.New("more bytes than announced")
		}
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s %s: %w: %w", r.what, r.key, ctx.Err(), err)
	}
	return nil, fmt.Errorf("%s %s: %w: %d of %d bytes: %w", r.what, r.key, objectstore.ErrTruncated, got, n, err)
}
