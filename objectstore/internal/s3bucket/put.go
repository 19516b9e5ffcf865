package s3bucket

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/forebaymq/forebay/objectstore"
)

// PutIfAbsent implements objectstore.Store. One request, and a second one if the key exists.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte, id string) (objectstore.Info, error) {
	info, err := s.put(ctx, objectstore.OpPut, key, "", body, id)
	if !errors.Is(err, objectstore.ErrPreconditionFailed) || objectstore.IsIndefinite(err) {
		return info, err
	}
	// The key exists. An earlier attempt of ours may have made it, one whose answer was lost.
	info, err = s.Stat(ctx, key)
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return objectstore.Info{}, fmt.Errorf("put %s: %w: it existed, and was deleted since", key, objectstore.ErrConflict)
	case err != nil:
		return objectstore.Info{}, fmt.Errorf("put %s: it exists, and whose it is cannot be told: %w", key, err)
	case info.ID != id:
		return objectstore.Info{}, fmt.Errorf("put %s: %w: written by %q", key, objectstore.ErrExists, info.ID)
	}
	return info, nil
}

// PutIfMatch implements objectstore.Store. One request, and a second one if the version is another.
func (s *Store) PutIfMatch(ctx context.Context, key, etag string, body []byte, id string) (objectstore.Info, error) {
	info, err := s.put(ctx, objectstore.OpPutMatch, key, etag, body, id)
	if !errors.Is(err, objectstore.ErrPreconditionFailed) || objectstore.IsIndefinite(err) {
		return info, err
	}
	// Some stores answer 412 for an absent key as well.
	if _, statErr := s.Stat(ctx, key); errors.Is(statErr, objectstore.ErrNotFound) {
		return objectstore.Info{}, fmt.Errorf("put %s: %w", key, objectstore.ErrNotFound)
	}
	return info, err
}

func (s *Store) put(ctx context.Context, op objectstore.Op, key, match string, body []byte, id string) (objectstore.Info, error) {
	if err := s.begin(ctx, "put", key); err != nil {
		return objectstore.Info{}, err
	}
	if err := objectstore.ValidatePut(key, id); err != nil {
		return objectstore.Info{}, fmt.Errorf("put: %w", err)
	}
	if op == objectstore.OpPutMatch && match == "" {
		return objectstore.Info{}, fmt.Errorf("put %s: %w: an empty version", key, objectstore.ErrPreconditionFailed)
	}
	full, err := s.full("put", key)
	if err != nil {
		return objectstore.Info{}, err
	}
	callCtx, call := begin(ctx, op)
	etag, err := s.client.Put(callCtx, Put{Key: full, Body: body, CRC: checksum(body), ID: escapeID(id), Match: match})
	if err != nil {
		return objectstore.Info{}, s.failure(ctx, call, "put", key, err)
	}
	modified := call.seen().date
	if modified.IsZero() {
		modified = s.opt.Clock.Now()
	}
	return objectstore.Info{Key: key, Size: int64(len(body)), Modified: modified, ETag: etag, ID: id}, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli) // read only

// checksum gives the CRC-32C as S3's headers have it: base64 of the four bytes, the highest first.
func checksum(body []byte) string {
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(body, castagnoli))
	return base64.StdEncoding.EncodeToString(sum[:])
}
