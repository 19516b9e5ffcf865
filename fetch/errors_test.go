package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/segment"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

func TestStoreErrorsAreRetriable(t *testing.T) {
	for _, cause := range []error{objectstore.ErrUnavailable, objectstore.ErrThrottled, objectstore.ErrTruncated, context.DeadlineExceeded, errors.New("?")} {
		w := newWorld(t)
		w.commit(values("a"))
		w.store.fault = func(string, int64, []byte, error) ([]byte, error) { return nil, fmt.Errorf("get: %w", cause) }
		f := w.fetcher(Options{})
		_, err := f.Read(context.Background(), request(0))
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeStorageUnavailable || e.RetryAfter != time.Second || !errors.Is(err, cause) {
			t.Errorf("%v becomes %v", cause, err)
		}
		w.store.fault = nil
		w.wantShape(w.read(f, request(0)), "0:a next 1 head 1 start 0") // failures are not cached
	}
}

// What was read before a fault is returned; the next read begins at the fault.
func TestFaultAfterSomeRecords(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a"))
	bad := w.commit(values("b"))[0]
	w.store.fault = func(key string, _ int64, b []byte, err error) ([]byte, error) {
		if key == objectKey(&bad) {
			return nil, objectstore.ErrUnavailable
		}
		return b, err
	}
	f := w.fetcher(Options{})
	w.wantShape(w.read(f, request(0)), "0:a next 1 head 2 start 0")
	if _, err := f.Read(context.Background(), request(1)); api.CodeOf(err) != api.CodeStorageUnavailable {
		t.Fatal(err)
	}
}

func wantUnreadable(t *testing.T, err error, code api.Code, first, next int64) *UnreadableError {
	t.Helper()
	var e *api.Error
	var u *UnreadableError
	if !errors.As(err, &e) || !errors.As(err, &u) {
		t.Fatalf("error is %v", err)
	}
	if e.Code != code || e.Extra["firstOffset"] != first || e.Extra["nextOffset"] != next || u.First != first || u.Next != next ||
		u.TopicID != testTopic || u.Partition != testPartition {
		t.Fatalf("error is %+v, %+v", e, u)
	}
	return u
}

func TestCorruptBatch(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a"))
	bad := w.commit(values("b", "c", "d"))[0]
	w.commit(values("e"))
	w.store.fault = func(key string, off int64, b []byte, err error) ([]byte, error) {
		if key == objectKey(&bad) {
			b = bytes.Clone(b)
			b[int64(bad.Ref.Pos)-off+segment.BatchHeaderSize] ^= 1
		}
		return b, err
	}
	var log bytes.Buffer
	f := w.fetcher(Options{Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	w.wantShape(w.read(f, request(0)), "0:a next 1 head 5 start 0")
	for range 3 {
		_, err := f.Read(context.Background(), request(2))
		u := wantUnreadable(t, err, api.CodeInternal, 2, 4)
		if !errors.Is(u, segment.ErrCorrupt) || u.Missing || u.Object != objectKey(&bad) {
			t.Fatalf("%+v", u)
		}
	}
	w.wantShape(w.read(f, request(4)), "4:e next 5 head 5 start 0")
	if n := count(f.m.unreadable.WithLabelValues(reasonCorrupt)); n != 1 {
		t.Errorf("counted %v times", n)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !contains(log.String(), objectKey(&bad)) || !contains(log.String(), `"structure":"checksum"`) {
		t.Errorf("log: %s", log.String())
	}
}

// Bytes that went wrong on the way, or in memory, are read again.
func TestCorruptOnTheWay(t *testing.T) {
	w := newWorld(t)
	e := w.commit(values("a"))[0]
	w.store.fault = func(_ string, off int64, b []byte, err error) ([]byte, error) {
		b = bytes.Clone(b)
		if w.store.gets.Load() == 1 {
			b[int64(e.Ref.Pos)-off+20] ^= 0x80
		}
		return b, err
	}
	f := w.fetcher(Options{})
	w.wantShape(w.read(f, request(0)), "0:a next 1 head 1 start 0")
	if n := count(f.m.refetched); n != 1 {
		t.Errorf("read again %v times", n)
	}
	body := bytes.Clone(w.last)
	body[e.Ref.Pos+segment.BatchHeaderSize] ^= 1
	f2 := w.fetcher(Options{})
	f2.Put(w.lastKey, body)
	w.wantShape(w.read(f2, request(0)), "0:a next 1 head 1 start 0")
}

// A shorter object than the metadata says, and positions outside of it.
func TestTruncatedObject(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a"))
	good := w.view.entries[0]
	for name, change := range map[string]func(){
		"size beyond the object": func() { w.view.entries[0].Segment.Size += 1000 },
		"batch beyond the size":  func() { w.view.entries[0].Ref.Pos += 1 << 20 },
		"batch without bytes":    func() { w.view.entries[0].Ref.Len = 0 },
		"more records":           func() { w.view.entries[0].Records++ },
		"batch across the end":   func() { w.view.entries[0].Ref.Len += 1 << 20 },
		"sparse":                 func() { w.view.entries[0].Sparse = true },
	} {
		t.Run(name, func(t *testing.T) {
			w.view.set(func() { w.view.entries[0] = good; change() })
			for _, block := range []int64{16, 1000, 1 << 20} {
				if name == "size beyond the object" && block == 16 {
					continue // the wrong end is not touched
				}
				f := w.fetcher(Options{BlockBytes: block})
				_, err := f.Read(context.Background(), request(0))
				wantUnreadable(t, err, api.CodeInternal, 0, 1)
			}
		})
	}
}

// Case S3: a missing object behind a live entry is a clear error.
func TestMissingObject(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a", "b"))
	if err := w.store.Delete(context.Background(), w.lastKey); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	f := w.fetcher(Options{Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	for range 2 {
		_, err := f.Read(context.Background(), request(1))
		u := wantUnreadable(t, err, api.CodeStorageUnavailable, 1, 2)
		if !u.Missing || !errors.Is(u, objectstore.ErrNotFound) {
			t.Fatalf("%+v", u)
		}
	}
	if n := count(f.m.unreadable.WithLabelValues(reasonMissing)); n != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("counted %v times, log %s", n, log.String())
	}
}

// The compactor replaces a batch and deletes its object between the index lookup and the GET.
func TestReplacedWhileReading(t *testing.T) {
	for _, stale := range []bool{false, true} {
		w := newWorld(t)
		w.commit(values("a", "b"))
		old := w.lastKey
		a, b := rec("k", "a"), rec("k", "b")
		b.Offset = 1
		a.AppendTime, b.AppendTime = testNow, testNow
		e := w.compacted(a, b)
		w.commit(values("c"))
		w.view.onLocate = func(n int) {
			if n == 2 {
				w.view.set(func() { w.view.entries[0] = e })
			}
		}
		if err := w.store.Delete(context.Background(), old); err != nil {
			t.Fatal(err)
		}
		f := w.fetcher(Options{})
		r := request(0)
		r.Stale = stale
		w.wantShape(w.read(f, r), "0:a 1:b 2:c next 3 head 3 start 0")
		if w.view.syncs == 0 {
			t.Error("a live object was judged missing without a barrier")
		}
	}
}

// A node that cannot make sure of the index does not judge an object missing.
func TestMissingObjectWithoutQuorum(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a"))
	good := w.lastKey
	w.commit(values("b"))
	if err := w.store.Delete(context.Background(), w.lastKey); err != nil {
		t.Fatal(err)
	}
	w.view.syncErr = api.Errorf(api.CodeMetadataUnavailable, "no quorum")
	f := w.fetcher(Options{})
	r := request(1)
	r.Stale = true
	if _, err := f.Read(context.Background(), r); api.CodeOf(err) != api.CodeMetadataUnavailable {
		t.Fatal(err)
	}
	r.Offset = 0
	w.wantShape(w.read(f, r), "0:a next 1 head 2 start 0") // what could be read is returned
	if good == w.lastKey {
		t.Fatal("one object")
	}
}

// The index moves on while an object is missing: retention took the batch, and the reader is told.
func TestTrimmedWhileReading(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a", "b"))
	gone := w.lastKey
	w.commit(values("c"))
	w.view.onLocate = func(n int) {
		if n == 2 {
			w.view.set(func() { w.view.info.LogStart, w.view.entries = 2, w.view.entries[1:] })
		}
	}
	if err := w.store.Delete(context.Background(), gone); err != nil {
		t.Fatal(err)
	}
	f := w.fetcher(Options{})
	_, err := f.Read(context.Background(), request(0))
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeOffsetOutOfRange || e.Extra["logStart"] != int64(2) {
		t.Fatal(err)
	}
}

func TestUnreadableText(t *testing.T) {
	u := &UnreadableError{TopicID: 1, Partition: 2, First: 3, Next: 5, Object: "l0/x.seg", Cause: errors.New("why")}
	if got := u.Error(); got != "topic 1 partition 2 offsets 3 to 4: object l0/x.seg is corrupt: why" {
		t.Error(got)
	}
	u.Missing = true
	if got := u.Error(); got != "topic 1 partition 2 offsets 3 to 4: object l0/x.seg is missing: why" {
		t.Error(got)
	}
}
