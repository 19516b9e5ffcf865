package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/forebaymq/forebay/objectstore"
)

// readNames is how many directory entries are read between two looks at the context.
const readNames = 1024

// List implements objectstore.Store. It reads the folders that can hold keys of the page, and no others; of each of them it reads
// all names, and looks at the files of the page only. Info.ID is empty.
func (s *Store) List(ctx context.Context, prefix, startAfter string, limit int) (objectstore.Page, error) {
	if err := s.enter(ctx, "list", prefix); err != nil {
		return objectstore.Page{}, err
	}
	defer s.busy.Done()
	if err := objectstore.ValidateListLimit(limit); err != nil {
		return objectstore.Page{}, fmt.Errorf("list %s: %w", prefix, err)
	}
	w := walk{s: s, ctx: ctx, prefix: prefix, after: startAfter, limit: limit}
	dir, _ := splitKey(prefix)
	rel := ""
	if dir != "" {
		if objectstore.ValidateKey(dir) != nil {
			return objectstore.Page{}, nil // no key can start like this
		}
		if rel = dirPath(dir); rel == "" {
			return objectstore.Page{}, nil
		}
		dir += "/"
	}
	if err := w.folder(rel, dir); err != nil && !errors.Is(err, errPageFull) {
		return objectstore.Page{}, unavailable("list", prefix, err)
	}
	return w.page, nil
}

// errPageFull ends a walk.
var errPageFull = errors.New("page is full")

// walk collects one page.
type walk struct {
	s             *Store
	ctx           context.Context
	prefix, after string
	limit         int
	page          objectstore.Page
}

// entry is one object or folder. Its sort key is the object's key, or the folder's with a slash: in the order of these, what a folder
// holds stands exactly where the keys belong ("a-b" before "a/b" before "a0").
type entry struct {
	sort string
	name string // of the file
	dir  bool
}

// folder adds the keys of one folder and those below it. base is "" or ends in a slash: what the keys in it start with.
func (w *walk) folder(rel, base string) error {
	entries, err := w.entries(rel, base)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		path := e.name
		if rel != "" {
			path = rel + "/" + e.name
		}
		if e.dir {
			if err := w.folder(path, e.sort); err != nil {
				return err
			}
			continue
		}
		st, err := os.Lstat(filepath.Join(w.s.root, filepath.FromSlash(path)))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		if err != nil {
			return err
		}
		if !st.Mode().IsRegular() || objectstore.ValidateKey(e.sort) != nil {
			continue // not ours
		}
		if len(w.page.Objects) == w.limit {
			w.page.Next = w.page.Objects[w.limit-1].Key
			return errPageFull
		}
		w.page.Objects = append(w.page.Objects, infoOf(e.sort, st))
	}
	return nil
}

// entries gives what a folder holds that may belong to the page, sorted. A folder that is absent is empty.
func (w *walk) entries(rel, base string) ([]entry, error) {
	d, err := os.Open(filepath.Join(w.s.root, filepath.FromSlash(rel)))
	if errors.Is(err, fs.ErrNotExist) && rel != "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var entries []entry
	for {
		if err := w.ctx.Err(); err != nil {
			return nil, err
		}
		batch, err := d.ReadDir(readNames)
		for _, de := range batch {
			if e, ok := w.wanted(base, de); ok {
				entries = append(entries, e)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.sort, b.sort) })
	return entries, nil
}

func (w *walk) wanted(base string, de fs.DirEntry) (entry, bool) {
	dir := de.IsDir()
	elem, ok := elementOf(de.Name(), dir)
	if !ok {
		return entry{}, false
	}
	if !dir {
		key := base + elem
		return entry{sort: key, name: de.Name()}, strings.HasPrefix(key, w.prefix) && key > w.after
	}
	key := base + elem + "/"
	// Keys below a folder start with key: they can match the prefix if one is the start of the other, and can come after the start
	// if key does, or if the start is below the folder itself.
	match := strings.HasPrefix(key, w.prefix) || strings.HasPrefix(w.prefix, key)
	return entry{sort: key, name: de.Name(), dir: true}, match && (key > w.after || strings.HasPrefix(w.after, key))
}
