package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// putAll puts empty objects, several at a time.
func (s *suite) putAll(keys []string) {
	s.Helper()
	const workers = 16
	for _, err := range race(workers, func(w int) error {
		for i := w; i < len(keys); i += workers {
			if _, err := s.store.PutIfAbsent(s.ctx, keys[i], nil, "w"); err != nil {
				return err
			}
		}
		return nil
	}) {
		s.want(err, nil, "put")
	}
}

// listOrder has keys whose order by elements differs from that by bytes.
func listOrder(s *suite) {
	keys := []string{"a", "a-b", "a-b/c", "a.b", "a/b", "a/b-c", "a/b/c", "a0", "a0/x", "ab", "ab/c", "B", "b", "b!", "b!/x", "b/" + "z", "b~", "z/y/x", "é"}
	keys = s.storable(keys)
	s.putAll(keys)
	slices.Sort(keys)
	for limit := 1; limit <= len(keys)+1; limit++ {
		if got := s.keys("", limit); !slices.Equal(got, keys) {
			s.Fatalf("list by %d:\n got %q\nwant %q", limit, got, keys)
		}
	}
	for _, prefix := range []string{"", "a", "a/", "a/b", "a/b/", "a-", "ab", "b", "b!", "z", "z/y/x", "z/y/x/", "c", "a/b/c/d"} {
		for after := range slices.Values(append(keys, "", "a/", "a/b/", "a/zzz", "0", "zzzz")) {
			var want []string
			for _, key := range keys {
				if strings.HasPrefix(key, prefix) && key > after {
					want = append(want, key)
				}
			}
			page, err := s.store.List(s.ctx, prefix, after, 1000)
			s.want(err, nil, "list %q after %q", prefix, after)
			var got []string
			for _, o := range page.Objects {
				got = append(got, o.Key)
			}
			if !slices.Equal(got, want) || page.Next != "" {
				s.Fatalf("list %q after %q: got %q next %q, want %q", prefix, after, got, page.Next, want)
			}
		}
	}
}

func listPrefix(s *suite) {
	keys := s.storable([]string{"a/1", "a/2", "ab/1", "ab/2", "ab", "b"})
	s.putAll(keys)
	for prefix, want := range map[string][]string{
		"":      {"a/1", "a/2", "ab", "ab/1", "ab/2", "b"},
		"a":     {"a/1", "a/2", "ab", "ab/1", "ab/2"},
		"a/":    {"a/1", "a/2"},
		"ab":    {"ab", "ab/1", "ab/2"},
		"ab/":   {"ab/1", "ab/2"},
		"ab/1":  {"ab/1"},
		"ab/1/": nil,
		"c":     nil,
		"c/d/e": nil,
	} {
		want = slices.DeleteFunc(want, func(key string) bool { return !slices.Contains(keys, key) })
		if got := s.keys(prefix, 2); !slices.Equal(got, want) {
			s.Errorf("list %q: got %q, want %q", prefix, got, want)
		}
	}
}

func listStartAfter(s *suite) {
	s.putAll([]string{"p/1", "p/2", "p/3"})
	for after, want := range map[string]int{"": 3, "p": 3, "p/": 3, "p/0": 3, "p/1": 2, "p/10": 2, "p/2": 1, "p/3": 0, "p/4": 0, "q": 0, "o": 3} {
		page, err := s.store.List(s.ctx, "p/", after, 1000)
		s.want(err, nil, "list after %q", after)
		if len(page.Objects) != want || page.Next != "" {
			s.Errorf("list after %q: %d objects, next %q, want %d and no more", after, len(page.Objects), page.Next, want)
		}
	}
}

// listPages stands on the edges of pages: a page that is exactly full is the last one if nothing follows.
func listPages(s *suite) {
	var keys []string
	for i := range 1001 {
		keys = append(keys, fmt.Sprintf("page/%02x/%04d", i%5, i))
	}
	s.putAll(keys[:1000])
	check := func(limit, want int, more bool) {
		s.Helper()
		page, err := s.store.List(s.ctx, "page/", "", limit)
		s.want(err, nil, "list by %d", limit)
		if len(page.Objects) != want || (page.Next != "") != more {
			s.Fatalf("list by %d: %d objects, next %q; want %d, more: %v", limit, len(page.Objects), page.Next, want, more)
		}
	}
	check(1000, 1000, false)
	check(999, 999, true)
	s.put(keys[1000], nil, "w")
	check(1000, 1000, true)
	slices.Sort(keys)
	for _, limit := range []int{1000, 500, 333, 143} {
		if got := s.keys("page/", limit); !slices.Equal(got, keys) {
			s.Fatalf("list by %d: %d keys, want %d, each once", limit, len(got), len(keys))
		}
	}
}

// listWhileWriting: keys that are there all the time are in every listing, however much comes and goes around them.
func listWhileWriting(s *suite) {
	var stable []string
	for i := range 50 {
		stable = append(stable, fmt.Sprintf("w/%02d", i))
	}
	s.putAll(stable)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var writeErr error
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			key := fmt.Sprintf("w/%02d-x", i%50)
			if _, writeErr = s.store.PutIfAbsent(s.ctx, key, nil, "w"); writeErr != nil {
				return
			}
			if writeErr = s.store.Delete(s.ctx, key); writeErr != nil {
				return
			}
		}
	})
	for range 20 {
		got := slices.DeleteFunc(s.keys("w/", 7), func(k string) bool { return strings.HasSuffix(k, "-x") })
		if !slices.Equal(got, stable) {
			close(stop)
			wg.Wait()
			s.Fatalf("list: %q, want the keys that are always there", got)
		}
	}
	close(stop)
	wg.Wait()
	s.want(writeErr, nil, "write meanwhile")
}
