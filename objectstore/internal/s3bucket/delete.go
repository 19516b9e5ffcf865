package s3bucket

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/forebaymq/forebay/objectstore"
)

// Delete implements objectstore.Store. One request for all keys.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	if err := s.begin(ctx, "delete", ""); err != nil {
		return allFailed(keys, err)
	}
	if err := objectstore.ValidateDelete(keys); err != nil {
		return err
	}
	failed := objectstore.KeyErrors{}
	full := make([]string, 0, len(keys))
	for _, key := range keys {
		k, err := s.full("delete", key)
		if err != nil {
			failed[key] = err
			continue
		}
		full = append(full, k)
	}
	slices.Sort(full)
	full = slices.Compact(full) // stores may refuse a request that names a key twice
	if len(full) == 0 {
		return failed.OrNil()
	}
	callCtx, call := begin(ctx, objectstore.OpDelete)
	answers, err := s.client.Delete(callCtx, full)
	if err != nil {
		for _, k := range full {
			key := k[len(s.opt.Prefix):]
			failed[key] = s.deleteFailure(ctx, call, key, err)
		}
		return failed.OrNil()
	}
	// A key is gone if the store says so of this key: an answer that leaves some out proves nothing about them.
	open := make(map[string]bool, len(full))
	for _, k := range full {
		open[k] = true
	}
	for _, a := range answers {
		if !open[a.Key] {
			continue
		}
		delete(open, a.Key)
		if a.Code != "" && a.Code != "NoSuchKey" {
			key := a.Key[len(s.opt.Prefix):]
			class, definite := keyClass(a.Code)
			failed[key] = outcome(objectstore.OpDelete, "delete", key, !definite, keyError(class, a))
		}
	}
	for k := range open {
		key := k[len(s.opt.Prefix):]
		failed[key] = outcome(objectstore.OpDelete, "delete", key, true, errors.New("the store's answer does not mention the key"))
	}
	return failed.OrNil()
}

// deleteFailure is failure, but for a request without a key of its own: 404 is about the bucket.
func (s *Store) deleteFailure(ctx context.Context, c *Call, key string, err error) error {
	err = s.failure(ctx, c, "delete", "", err)
	var unknown *objectstore.OutcomeUnknownError
	if errors.As(err, &unknown) {
		return &objectstore.OutcomeUnknownError{Op: unknown.Op, Key: key, Cause: unknown.Cause}
	}
	return fmt.Errorf("%s: %w", key, err)
}

func keyError(class error, a Deleted) error {
	if class == nil {
		return fmt.Errorf("the store answered %s: %s", a.Code, a.Message)
	}
	return fmt.Errorf("%w: the store answered %s: %s", class, a.Code, a.Message)
}

func allFailed(keys []string, err error) error {
	failed := objectstore.KeyErrors{}
	for _, key := range keys {
		failed[key] = err
	}
	return failed.OrNil()
}
