package retry

import (
	"context"

	"github.com/forebaymq/forebay/objectstore"
)

// Get implements objectstore.Store.
func (s *Store) Get(ctx context.Context, key string) (body []byte, info objectstore.Info, err error) {
	err = s.run(ctx, objectstore.OpGet, func(tryCtx context.Context) (bool, error) {
		var err error
		body, info, err = s.next.Get(tryCtx, key)
		err = s.tried(tryCtx, err)
		return retriable(ctx, err), err
	})
	return body, info, err
}

// GetRange implements objectstore.Store.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (body []byte, err error) {
	err = s.run(ctx, objectstore.OpGetRange, func(tryCtx context.Context) (bool, error) {
		var err error
		body, err = s.next.GetRange(tryCtx, key, off, n)
		err = s.tried(tryCtx, err)
		return retriable(ctx, err), err
	})
	return body, err
}

// GetTail implements objectstore.Store.
func (s *Store) GetTail(ctx context.Context, key string, n int64) (body []byte, info objectstore.Info, err error) {
	err = s.run(ctx, objectstore.OpGetTail, func(tryCtx context.Context) (bool, error) {
		var err error
		body, info, err = s.next.GetTail(tryCtx, key, n)
		err = s.tried(tryCtx, err)
		return retriable(ctx, err), err
	})
	return body, info, err
}

// List implements objectstore.Store.
func (s *Store) List(ctx context.Context, prefix, startAfter string, limit int) (page objectstore.Page, err error) {
	err = s.run(ctx, objectstore.OpList, func(tryCtx context.Context) (bool, error) {
		var err error
		page, err = s.next.List(tryCtx, prefix, startAfter, limit)
		err = s.tried(tryCtx, err)
		return retriable(ctx, err), err
	})
	return page, err
}

// Stat implements objectstore.Store.
func (s *Store) Stat(ctx context.Context, key string) (info objectstore.Info, err error) {
	err = s.run(ctx, objectstore.OpStat, func(tryCtx context.Context) (bool, error) {
		var err error
		info, err = s.next.Stat(tryCtx, key)
		err = s.tried(tryCtx, err)
		return retriable(ctx, err), err
	})
	return info, err
}
