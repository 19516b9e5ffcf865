package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/forebaymq/forebay/objectstore"
)

func invalidKeys(s *suite) {
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/.", "a/..", "./a", "../a", "a/../b", "a/./b", "a\x00b", "a\nb", "a\x7fb", "a\u0085b", "a\xffb", "\xed\xa0\x80",
		strings.Repeat("a", objectstore.MaxElementBytes+1),
		strings.Repeat("abcdefg/", objectstore.MaxKeyBytes/8) + "x",
	} {
		_, _, err := s.store.Get(s.ctx, key)
		s.want(err, objectstore.ErrInvalidKey, "get %q", key)
		_, err = s.store.GetRange(s.ctx, key, 0, 1)
		s.want(err, objectstore.ErrInvalidKey, "get range %q", key)
		_, _, err = s.store.GetTail(s.ctx, key, 1)
		s.want(err, objectstore.ErrInvalidKey, "get tail %q", key)
		_, err = s.store.Stat(s.ctx, key)
		s.want(err, objectstore.ErrInvalidKey, "stat %q", key)
		_, err = s.store.PutIfAbsent(s.ctx, key, []byte("x"), "w")
		s.want(err, objectstore.ErrInvalidKey, "put %q", key)
		if !s.opt.NoPutIfMatch {
			_, err = s.store.PutIfMatch(s.ctx, key, "v", []byte("x"), "w")
			s.want(err, objectstore.ErrInvalidKey, "put if match %q", key)
		}
		err = s.store.Delete(s.ctx, key)
		s.want(err, objectstore.ErrInvalidKey, "delete %q", key)
	}
	if got := s.keys("", 10); len(got) != 0 {
		s.Errorf("invalid keys left %q", got)
	}
}

// storable drops the keys that the store is known not to hold or to list.
func (s *suite) storable(keys []string) []string {
	var out []string
	for _, key := range keys {
		below := slices.ContainsFunc(keys, func(other string) bool { return strings.HasPrefix(other, key+"/") })
		if (s.opt.NoKeyBelowKey || s.opt.HidesKeyBelowKey) && below || s.opt.PlainKeys && strings.ContainsFunc(key, escaped) {
			continue
		}
		out = append(out, key)
	}
	return out
}

// escaped says whether a character of a key is written otherwise in a URL.
func escaped(r rune) bool {
	return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/", r)
}

// oddKeys are valid, whatever a store makes of them.
func oddKeys(s *suite) {
	keys := []string{
		"A", "a", "a.d", "a.d.d", "a%2Ed", "a%25", "a%", "%", "%2E", "%25", "..a", "...", ".tmp", ".tmp/x", ".d", "a.d/b", "a b", " ", "a\\b", "a'b\"c", "a&b=c?d#e",
		"é", "e\u0301", "日本/語", "a:b", "*", "~", "-", "a+b", "a<b>", "x/.hidden", "x/y.d", "x.d/y", "lock", "LOCK",
		strings.Repeat("m", objectstore.MaxElementBytes),
		strings.Repeat("abcdefg/", objectstore.MaxKeyBytes/8-1) + "12345678",
	}
	keys = s.storable(keys)
	if s.opt.NoBlankKey {
		keys = slices.DeleteFunc(keys, func(key string) bool { return strings.TrimSpace(key) == "" })
		_, err := s.store.PutIfAbsent(s.ctx, " ", []byte("x"), "w")
		s.want(err, objectstore.ErrInvalidKey, "put of a blank key")
	}
	for i, key := range keys {
		s.put(key, []byte(fmt.Sprint(i)), "w")
	}
	for i, key := range keys {
		s.wantBody(key, []byte(fmt.Sprint(i)))
	}
	slices.Sort(keys)
	for _, limit := range []int{1, 7, 1000} {
		if got := s.keys("", limit); !slices.Equal(got, keys) {
			s.Errorf("list by %d:\n got %q\nwant %q", limit, got, keys)
		}
	}
	for _, prefix := range []string{".", "..", "../", "%", "a.d", "a.d/", "/", "a//", "x/./", "\x00", "\xff", ".tmp/", "é"} {
		if s.opt.NoDotPrefix && (prefix == "." || prefix == "..") {
			if page, err := s.store.List(s.ctx, prefix, "", 1000); err == nil {
				s.Errorf("list %q: %+v, want a refusal", prefix, page)
			}
			continue
		}
		var want []string
		for _, key := range keys {
			if strings.HasPrefix(key, prefix) {
				want = append(want, key)
			}
		}
		if got := s.keys(prefix, 1000); !slices.Equal(got, want) {
			s.Errorf("list %q: got %q, want %q", prefix, got, want)
		}
	}
	s.want(s.store.Delete(s.ctx, keys...), nil, "delete")
	if got := s.keys("", 10); len(got) != 0 {
		s.Errorf("after deleting all: %q", got)
	}
}

func invalidArguments(s *suite) {
	for _, id := range []string{"", "a\nb", "é", "\x7f", strings.Repeat("i", objectstore.MaxIDBytes+1)} {
		_, err := s.store.PutIfAbsent(s.ctx, "k", []byte("x"), id)
		s.want(err, objectstore.ErrInvalidArgument, "put with ID %q", id)
	}
	for _, limit := range []int{0, -1, objectstore.MaxListKeys + 1} {
		_, err := s.store.List(s.ctx, "", "", limit)
		s.want(err, objectstore.ErrInvalidArgument, "list with limit %d", limit)
	}
	err := s.store.Delete(s.ctx, make([]string, objectstore.MaxDeleteKeys+1)...)
	s.want(err, objectstore.ErrInvalidArgument, "delete of too many keys")
	for _, id := range []string{"i", " ", "~!#", strings.Repeat("i", objectstore.MaxIDBytes)} {
		key := fmt.Sprintf("id/%x", id)[:min(200, 3+2*len(id))]
		s.put(key, []byte("x"), id)
		info, err := s.store.Stat(s.ctx, key)
		s.want(err, nil, "stat")
		if !s.opt.ContentIDs && info.ID != id {
			s.Errorf("ID %q came back as %q", id, info.ID)
		}
	}
}

// keyAndPrefix: a key may be an object and a prefix of others, in whichever order they come and go.
func keyAndPrefix(s *suite) {
	if s.opt.NoKeyBelowKey {
		refusesKeyBelowKey(s)
		return
	}
	for _, order := range [][]string{{"p", "p/q", "p/q/r"}, {"p/q/r", "p/q", "p"}} {
		for _, key := range order {
			s.put(key, []byte("body of "+key), "w")
		}
		for _, key := range order {
			s.wantBody(key, []byte("body of "+key))
		}
		want := []string{"p", "p/q", "p/q/r"}
		if s.opt.HidesKeyBelowKey {
			want = want[:1]
		}
		if got := s.keys("p", 10); !slices.Equal(got, want) {
			s.Errorf("keys %q, want %q", got, want)
		}
		for i, key := range order {
			s.want(s.store.Delete(s.ctx, key), nil, "delete %s", key)
			_, err := s.store.Stat(s.ctx, key)
			s.want(err, objectstore.ErrNotFound, "stat of the deleted %s", key)
			for _, left := range order[i+1:] {
				s.wantBody(left, []byte("body of "+left))
			}
		}
	}
}

// refusesKeyBelowKey: a store that cannot hold both says so, and keeps the one that it has.
func refusesKeyBelowKey(s *suite) {
	for _, order := range [][]string{{"first", "first/below"}, {"second/below", "second"}} {
		s.put(order[0], []byte("body"), "w")
		if _, err := s.store.PutIfAbsent(s.ctx, order[1], []byte("other"), "w"); err == nil || objectstore.IsIndefinite(err) {
			s.Errorf("put of %s beside %s: %v, want a definite error", order[1], order[0], err)
		}
		s.wantBody(order[0], []byte("body"))
	}
}

func deletes(s *suite) {
	s.want(s.store.Delete(s.ctx), nil, "delete nothing")
	s.want(s.store.Delete(s.ctx, "absent", "no/such/folder"), nil, "delete absent keys")
	s.put("a", nil, "w")
	s.put("b", nil, "w")
	s.want(s.store.Delete(s.ctx, "a", "absent", "a"), nil, "delete with an absent and a repeated key")
	if got := s.keys("", 10); !slices.Equal(got, []string{"b"}) {
		s.Errorf("keys %q, want b", got)
	}
	s.want(s.store.Delete(s.ctx, "a"), nil, "delete again")
	keys := make([]string, objectstore.MaxDeleteKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("many/%d/%04d", i%7, i)
	}
	s.putAll(keys)
	s.want(s.store.Delete(s.ctx, keys...), nil, "delete %d keys", len(keys))
	if got := s.keys("", 10); !slices.Equal(got, []string{"b"}) {
		s.Errorf("keys %q, want b", got)
	}
}

func deleteErrors(s *suite) {
	s.put("good", nil, "w")
	err := s.store.Delete(s.ctx, "a//b", "good", "../x")
	var failed objectstore.KeyErrors
	if !errors.As(err, &failed) {
		s.Fatalf("delete: %v (%T), want KeyErrors", err, err)
	}
	if len(failed) != 2 {
		s.Errorf("failed keys %v, want the two bad ones", failed)
	}
	for _, key := range []string{"a//b", "../x"} {
		s.want(failed[key], objectstore.ErrInvalidKey, "error of %q", key)
	}
	_, err = s.store.Stat(s.ctx, "good")
	s.want(err, objectstore.ErrNotFound, "stat of the good key after the delete")
}

// deleteRace puts into a folder while others empty it: no acknowledged put may vanish with the folder.
func deleteRace(s *suite) {
	for _, err := range race(8, func(w int) error {
		for i := range 10 {
			key := fmt.Sprintf("shared/folder/%d", w)
			err := objectstore.ErrConflict
			for errors.Is(err, objectstore.ErrConflict) { // it had no effect: try again
				_, err = s.store.PutIfAbsent(s.ctx, key, []byte{byte(i)}, fmt.Sprintf("%d-%d", w, i))
			}
			if err != nil {
				return err
			}
			if got, _, err := s.store.Get(s.ctx, key); err != nil || got[0] != byte(i) {
				return fmt.Errorf("get after put: %v, %w", got, err)
			}
			if err := s.store.Delete(s.ctx, key); err != nil {
				return err
			}
		}
		return nil
	}) {
		s.want(err, nil, "put, get, delete")
	}
}
