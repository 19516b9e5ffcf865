package store

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Remembered is a lease of a remembered request that is still live.
type Remembered struct {
	Receipt
	Attempt int32
	Expires int64 // Unix ms
}

func (s *Store) named(q *Queue, kind, name string) string {
	return s.prefix(q.ID) + kind + ":" + base64.RawURLEncoding.EncodeToString([]byte(name))
}

// Remember keeps for ttl which leases a request got.
func (s *Store) Remember(ctx context.Context, q *Queue, requestID string, receipts []Receipt, ttl time.Duration) error {
	p := coalesce(receipts)
	var b strings.Builder
	for _, x := range p.spans {
		fmt.Fprintf(&b, "%d %d %d %s ", p.partitions[x.partition], x.start, x.count, x.nonce)
	}
	if err := s.c.Set(ctx, s.named(q, keyRemembered, requestID), b.String(), max(ttl, time.Millisecond)).Err(); err != nil {
		return unavailable(err)
	}
	return nil
}

// Recall gives those leases of a request that are still live, none for a request that is not remembered.
func (s *Store) Recall(ctx context.Context, q *Queue, requestID string) ([]Remembered, error) {
	text, err := s.c.Get(ctx, s.named(q, keyRemembered, requestID)).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	} else if err != nil {
		return nil, unavailable(err)
	}
	var args []any
	for word := range strings.FieldsSeq(text) {
		args = append(args, word)
	}
	if len(args)%4 != 0 {
		return nil, unavailable(fmt.Errorf("remembered request: %w", errReply))
	}
	r, err := s.run(ctx, scriptRecall, q, args...)
	if err != nil {
		return nil, err
	}
	out := make([]Remembered, r.count())
	for i := range out {
		out[i] = Remembered{Receipt{r.partition(), r.int(), r.word()}, int32(r.int()), r.int()}
	}
	return out, s.finished(scriptRecall, r)
}

// Lock takes or renews a named hint for ttl; false when another holder has it. It is a hint: two may believe that they hold it.
func (s *Store) Lock(ctx context.Context, q *Queue, name, holder string, ttl time.Duration) (bool, error) {
	key := s.named(q, keyHints, name)
	err := s.c.SetArgs(ctx, key, holder, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
	if err == nil {
		return true, nil
	} else if !errors.Is(err, redis.Nil) {
		return false, unavailable(err)
	}
	have, err := s.c.Get(ctx, key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, unavailable(err)
	}
	if have != holder {
		return false, nil
	}
	if err := s.c.PExpire(ctx, key, ttl).Err(); err != nil {
		return false, unavailable(err)
	}
	return true, nil
}

// Held says who holds a hint, "" when nobody does.
func (s *Store) Held(ctx context.Context, q *Queue, name string) (holder string, err error) {
	holder, err = s.c.Get(ctx, s.named(q, keyHints, name)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", unavailable(err)
	}
	return holder, nil
}

// Unlock gives a hint back, if the holder has it.
func (s *Store) Unlock(ctx context.Context, q *Queue, name, holder string) error {
	key := s.named(q, keyHints, name)
	have, err := s.c.Get(ctx, key).Result()
	if err == nil && have == holder {
		err = s.c.Del(ctx, key).Err()
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return unavailable(err)
	}
	return nil
}
