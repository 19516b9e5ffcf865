package s3bucket

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/forebaymq/forebay/objectstore"
)

// List implements objectstore.Store. One request, unless the store gives fewer keys than it has, which it may.
func (s *Store) List(ctx context.Context, prefix, startAfter string, limit int) (objectstore.Page, error) {
	if err := s.begin(ctx, "list", prefix); err != nil {
		return objectstore.Page{}, err
	}
	if err := objectstore.ValidateListLimit(limit); err != nil {
		return objectstore.Page{}, fmt.Errorf("list %s: %w", prefix, err)
	}
	if !possible(prefix) {
		return objectstore.Page{}, nil // no key starts so; stores answer such questions in many ways
	}
	if s.opt.Unordered {
		return s.listUnordered(ctx, prefix, startAfter, limit)
	}
	return s.listOrdered(ctx, prefix, startAfter, limit)
}

// possible says whether a valid key can start with prefix, as far as characters go.
func possible(prefix string) bool {
	folders := strings.Split(prefix, "/")
	for _, elem := range folders[:len(folders)-1] {
		if elem == "" || elem == "." || elem == ".." {
			return false
		}
	}
	return utf8.ValidString(prefix) && !strings.ContainsFunc(prefix, unicode.IsControl)
}

func (s *Store) listOrdered(ctx context.Context, prefix, startAfter string, limit int) (objectstore.Page, error) {
	in := List{Prefix: s.opt.Prefix + prefix, Limit: limit}
	switch {
	case startAfter == "" || startAfter < prefix:
		// Everything with the prefix comes after it. Left out: it may be no valid key, or of a form that a store refuses.
	case startAfter > prefix && !strings.HasPrefix(startAfter, prefix):
		return objectstore.Page{}, nil // nothing with the prefix comes after it
	case !utf8.ValidString(startAfter):
		return objectstore.Page{}, fmt.Errorf("list %s: %w: start after %q is not UTF-8", prefix, objectstore.ErrInvalidArgument, startAfter)
	default:
		in.StartAfter = s.opt.Prefix + startAfter
	}
	page := objectstore.Page{Objects: make([]objectstore.Info, 0, min(limit, 64))}
	last := ""
	for {
		got, err := s.listPage(ctx, prefix, in)
		if err != nil {
			return objectstore.Page{}, err
		}
		for _, o := range got.Objects {
			key, ok := strings.CutPrefix(o.Key, s.opt.Prefix)
			if !ok || !strings.HasPrefix(key, prefix) {
				return objectstore.Page{}, fmt.Errorf("list %s: the store lists %q, which does not start so", prefix, o.Key)
			}
			if key <= startAfter {
				continue // of a store that ignores where to start
			}
			if last != "" && key <= last {
				return objectstore.Page{}, fmt.Errorf("list %s: the store lists %q after %q: its lists are not in the order of keys", prefix, key, last)
			}
			if len(page.Objects) == limit {
				page.Next = last
				return page, nil
			}
			last = key
			if objectstore.ValidateKey(key) != nil {
				continue // a foreign object, such as a folder's marker; no key of ours
			}
			page.Objects = append(page.Objects, s.listed(key, o))
		}
		if got.Token == "" {
			return page, nil
		}
		if len(page.Objects) == limit {
			page.Next = last
			return page, nil
		}
		if got.Token == in.Token {
			return objectstore.Page{}, fmt.Errorf("list %s: %w", prefix, errRepeats)
		}
		in.Token = got.Token
	}
}

var errRepeats = errors.New("the store gives the same page again and again")

func (s *Store) listPage(ctx context.Context, prefix string, in List) (ListPage, error) {
	callCtx, call := begin(ctx, objectstore.OpList)
	got, err := s.client.List(callCtx, in)
	if err == nil {
		return got, nil
	}
	seen := call.seen()
	if seen.status == 200 && ctx.Err() == nil {
		// A whole answer that the library cannot read: nothing was skipped, and asking again may help.
		return ListPage{}, fmt.Errorf("list %s: %w: %w", prefix, objectstore.ErrTruncated, err)
	}
	return ListPage{}, s.failure(ctx, call, "list", "", err)
}

func (s *Store) listed(key string, o Listed) objectstore.Info {
	return objectstore.Info{Key: key, Size: o.Size, ETag: o.ETag, Modified: o.Modified}
}
