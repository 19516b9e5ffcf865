package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/forebaymq/forebay/objectstore"
)

// Delete implements objectstore.Store. It shares a lock with other deletes that PutIfMatch holds alone, so that a replacement cannot
// bring back what is deleted between its look and its rename.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	if err := objectstore.ValidateDelete(keys); err != nil {
		return err
	}
	failed := objectstore.KeyErrors{}
	failAll := func(keys []string, err error) error {
		for _, key := range keys {
			failed[key] = err
		}
		return failed.OrNil()
	}
	if err := s.enter(ctx, "delete", fmt.Sprintf("%d keys", len(keys))); err != nil {
		return failAll(keys, err)
	}
	defer s.busy.Done()
	lock, err := waitLock(ctx, s.clock, s.matchLockPath(), unix.LOCK_SH)
	if err != nil {
		return failAll(keys, unavailable("delete", fmt.Sprintf("%d keys", len(keys)), err))
	}
	defer lock.Close()
	for i, key := range keys {
		if err := ctx.Err(); err != nil {
			return failAll(keys[i:], fmt.Errorf("delete: %w", err))
		}
		path, err := s.locate("delete", key)
		if err != nil {
			failed[key] = err
			continue
		}
		err = s.ops.remove(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			failed[key] = unavailable("delete", key, err)
		}
	}
	return failed.OrNil()
}
