package storetest

import (
	"bytes"
	"time"

	"github.com/forebaymq/forebay/objectstore"
)

func roundTrip(s *suite) {
	for i, size := range []int{0, 1, 2, 4095, 4096, 1<<20 + 1, s.opt.BigObject} {
		key, body := "rt/"+string(rune('a'+i)), payload(size, uint64(i))
		info := s.put(key, body, "w")
		if info.Key != key || info.Size != int64(size) {
			s.Errorf("put %s of %d bytes: info %+v", key, size, info)
		}
		got, info, err := s.store.Get(s.ctx, key)
		s.want(err, nil, "get %s", key)
		if !bytes.Equal(got, body) {
			s.Errorf("get %s: %d bytes that differ from the %d written", key, len(got), size)
		}
		if info.Size != int64(size) {
			s.Errorf("get %s: size %d, want %d", key, info.Size, size)
		}
	}
}

func infoFields(s *suite) {
	before := time.Now()
	put := s.put("info/x", []byte("hello"), "writer-1")
	after := time.Now()
	check := func(what string, got objectstore.Info, id string) {
		s.Helper()
		if got.Key != "info/x" || got.Size != 5 || got.ETag == "" || got.ETag != put.ETag || got.ID != id {
			s.Errorf("%s: info %+v, put gave %+v, want ID %q", what, got, put, id)
		}
		if got.Modified.Before(before.Add(-s.opt.ClockSkew)) || got.Modified.After(after.Add(s.opt.ClockSkew)) {
			s.Errorf("%s: modified %v, written between %v and %v", what, got.Modified, before, after)
		}
	}
	id := "writer-1"
	if s.opt.ContentIDs {
		id = ""
	}
	check("put", put, id)
	stat, err := s.store.Stat(s.ctx, "info/x")
	s.want(err, nil, "stat")
	check("stat", stat, id)
	_, get, err := s.store.Get(s.ctx, "info/x")
	s.want(err, nil, "get")
	check("get", get, id)
	_, tail, err := s.store.GetTail(s.ctx, "info/x", 2)
	s.want(err, nil, "get tail")
	check("get tail", tail, id)
	again, err := s.store.PutIfAbsent(s.ctx, "info/x", []byte("hello"), "writer-1")
	s.want(err, nil, "put again")
	check("put again", again, id)
	page, err := s.store.List(s.ctx, "info/", "", 10)
	s.want(err, nil, "list")
	if len(page.Objects) != 1 || page.Next != "" {
		s.Fatalf("list: %+v, want one object", page)
	}
	check("list", page.Objects[0], page.Objects[0].ID)
	if got := page.Objects[0].ID; got != "" && got != id {
		s.Errorf("list: ID %q, want none or %q", got, id)
	}
}

func bodyIsNotShared(s *suite) {
	body := []byte("immutable")
	s.put("k", body, "w")
	body[0] = 'X'
	s.wantBody("k", []byte("immutable"))
	for _, read := range []func() ([]byte, error){
		func() ([]byte, error) { b, _, err := s.store.Get(s.ctx, "k"); return b, err },
		func() ([]byte, error) { return s.store.GetRange(s.ctx, "k", 0, 9) },
		func() ([]byte, error) { b, _, err := s.store.GetTail(s.ctx, "k", 9); return b, err },
	} {
		b, err := read()
		s.want(err, nil, "read")
		b[0] = 'Y'
		s.wantBody("k", []byte("immutable"))
	}
}

func ranges(s *suite) {
	body := payload(1000, 1)
	s.put("r", body, "w")
	s.put("empty", nil, "w")
	const invalid = -1
	for _, tc := range []struct {
		key        string
		off, n     int64
		start, end int // of body; start invalid: ErrInvalidRange
	}{
		{"r", 0, 1, 0, 1},
		{"r", 0, 1000, 0, 1000},
		{"r", 0, 1001, 0, 1000},
		{"r", 10, 20, 10, 30},
		{"r", 999, 1, 999, 1000},
		{"r", 999, 2, 999, 1000},
		{"r", 990, 1 << 40, 990, 1000},
		{"r", 1, 1<<63 - 1, 1, 1000}, // offset + length overflows
		{"r", 1000, 1, invalid, 0},
		{"r", 1001, 1, invalid, 0},
		{"r", 1<<63 - 1, 1<<63 - 1, invalid, 0},
		{"r", -1, 1, invalid, 0},
		{"r", 0, 0, invalid, 0},
		{"r", 0, -1, invalid, 0},
		{"empty", 0, 1, invalid, 0},
	} {
		got, err := s.store.GetRange(s.ctx, tc.key, tc.off, tc.n)
		if tc.start == invalid {
			s.want(err, objectstore.ErrInvalidRange, "range %s %d+%d", tc.key, tc.off, tc.n)
			continue
		}
		s.want(err, nil, "range %s %d+%d", tc.key, tc.off, tc.n)
		if !bytes.Equal(got, body[tc.start:tc.end]) {
			s.Errorf("range %s %d+%d: wrong bytes (%d)", tc.key, tc.off, tc.n, len(got))
		}
	}
}

func tails(s *suite) {
	body := payload(1000, 2)
	s.put("t", body, "w")
	s.put("empty", nil, "w")
	for _, tc := range []struct {
		key string
		n   int64
		len int
	}{{"t", 1, 1}, {"t", 999, 999}, {"t", 1000, 1000}, {"t", 1001, 1000}, {"t", 1<<63 - 1, 1000}, {"empty", 1, 0}, {"empty", 100, 0}} {
		got, info, err := s.store.GetTail(s.ctx, tc.key, tc.n)
		s.want(err, nil, "tail %s %d", tc.key, tc.n)
		want := body[1000-tc.len:]
		if !bytes.Equal(got, want) {
			s.Errorf("tail %s %d: wrong bytes (%d, want %d)", tc.key, tc.n, len(got), len(want))
		}
		if size := map[string]int64{"t": 1000, "empty": 0}[tc.key]; info.Size != size {
			s.Errorf("tail %s %d: size %d, want the whole object's %d", tc.key, tc.n, info.Size, size)
		}
	}
	for _, n := range []int64{0, -1} {
		_, _, err := s.store.GetTail(s.ctx, "t", n)
		s.want(err, objectstore.ErrInvalidRange, "tail of %d", n)
	}
}

func absent(s *suite) {
	s.put("there", []byte("x"), "w")
	for _, key := range []string{"nothing", "there/below", "ther", "no/such/folder/x"} {
		_, _, err := s.store.Get(s.ctx, key)
		s.want(err, objectstore.ErrNotFound, "get %s", key)
		_, err = s.store.GetRange(s.ctx, key, 0, 1)
		s.want(err, objectstore.ErrNotFound, "get range %s", key)
		_, _, err = s.store.GetTail(s.ctx, key, 1)
		s.want(err, objectstore.ErrNotFound, "get tail %s", key)
		_, err = s.store.Stat(s.ctx, key)
		s.want(err, objectstore.ErrNotFound, "stat %s", key)
	}
}
