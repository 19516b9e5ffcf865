package s3bucket

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/forebaymq/forebay/objectstore"
)

// windowKeys is how many keys of an unordered bucket one reading of all of them keeps sorted: about 15 MB of memory.
const windowKeys = 50_000

// window is a sorted part of the keys of an unordered bucket: all that a reading of the bucket showed after `after`, up to windowKeys.
type window struct {
	prefix, after string
	objects       []objectstore.Info
	more          bool // there were more keys than the window holds
}

// listUnordered lists a directory bucket. Such a bucket gives its keys in no order and knows no start, so every key below the folder is
// read, and the first ones in order are kept. The pages that follow come from what was kept, for a caller that goes on where the page before
// ended: a listing of n keys costs n/1000 requests for every windowKeys of them.
func (s *Store) listUnordered(ctx context.Context, prefix, startAfter string, limit int) (objectstore.Page, error) {
	w := s.takeWindow(prefix, startAfter)
	if w == nil {
		var err error
		if w, err = s.readWindow(ctx, prefix, startAfter); err != nil {
			return objectstore.Page{}, err
		}
	}
	n := min(limit, len(w.objects))
	page := objectstore.Page{Objects: slices.Clone(w.objects[:n])}
	rest := &window{prefix: prefix, objects: w.objects[n:], more: w.more}
	if len(rest.objects) == 0 && !rest.more {
		return page, nil
	}
	page.Next = page.Objects[n-1].Key
	rest.after = page.Next
	if len(rest.objects) >= limit || !rest.more { // else the next page would be short
		s.mu.Lock()
		if !s.mu.closed {
			s.mu.window = rest
		}
		s.mu.Unlock()
	}
	return page, nil
}

// takeWindow gives what is left of the last list if the caller goes on with it. A window is used once.
func (s *Store) takeWindow(prefix, startAfter string) *window {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.mu.window
	if startAfter == "" || w == nil || w.prefix != prefix || w.after != startAfter {
		return nil
	}
	s.mu.window = nil
	return w
}

func (s *Store) readWindow(ctx context.Context, prefix, startAfter string) (*window, error) {
	w := &window{prefix: prefix}
	full := s.opt.Prefix + prefix
	in := List{Prefix: full[:strings.LastIndexByte(full, '/')+1], Limit: objectstore.MaxListKeys} // such a bucket takes folders only
	for {
		got, err := s.listPage(ctx, prefix, in)
		if err != nil {
			return nil, err
		}
		for _, o := range got.Objects {
			key, ok := strings.CutPrefix(o.Key, s.opt.Prefix)
			if ok && strings.HasPrefix(key, prefix) && key > startAfter && objectstore.ValidateKey(key) == nil {
				w.objects = append(w.objects, s.listed(key, o))
			}
		}
		if len(w.objects) >= 2*windowKeys {
			w.cut()
		}
		if got.Token == "" {
			w.cut()
			return w, nil
		}
		if got.Token == in.Token {
			return nil, fmt.Errorf("list %s: %w", prefix, errRepeats)
		}
		in.Token = got.Token
	}
}

// cut sorts, and drops what is above the size of a window.
func (w *window) cut() {
	slices.SortFunc(w.objects, func(a, b objectstore.Info) int { return strings.Compare(a.Key, b.Key) })
	w.objects = slices.CompactFunc(w.objects, func(a, b objectstore.Info) bool { return a.Key == b.Key })
	if len(w.objects) > windowKeys {
		clear(w.objects[windowKeys:])
		w.objects = w.objects[:windowKeys]
		w.more = true
	}
}
