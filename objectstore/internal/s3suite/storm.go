package s3suite

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/internal/s3fake"
)

// storm has half of all requests fail in some way, drawn from a seed, and judges every answer by what the store holds.
func storm(s *suite) {
	rng := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	s.server.SetScript(func(r s3fake.Request) s3fake.Fault {
		if r.Op == "BUCKET" {
			return s3fake.Fault{}
		}
		mu.Lock()
		n := rng.IntN(16)
		mu.Unlock()
		switch n {
		case 0:
			return s3fake.Fault{DropAfter: true}
		case 1:
			return s3fake.Fault{DropBefore: true}
		case 2:
			return s3fake.Fault{Status: 503, Code: "SlowDown"}
		case 3:
			return s3fake.Fault{ErrorAfter: 500, Code: "InternalError"}
		case 4:
			return s3fake.Fault{Status: 500, Code: "InternalError"}
		case 5:
			if r.Op == "GET" || r.Op == "LIST" {
				return s3fake.Fault{CutBody: 3}
			}
			return s3fake.Fault{Status: 409, Code: "ConditionalRequestConflict"}
		case 6:
			if r.Op == "DELETE" || r.Op == "LIST" {
				return s3fake.Fault{Inside: true, Code: "InternalError"}
			}
		}
		return s3fake.Fault{}
	})
	store := s.retrying()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 15 {
				s.stormOnce(store, fmt.Sprintf("w%d/%d", w, i), fmt.Sprintf("body %d %d", w, i))
			}
		})
	}
	wg.Wait()
}

func (s *suite) stormOnce(store objectstore.Store, key, body string) {
	_, err := store.PutIfAbsent(s.ctx, key, []byte(body), "writer of "+key)
	got, there := s.server.Body(key)
	switch {
	case err == nil && (!there || got != body):
		s.Errorf("put %s succeeded, the store has %q (%v)", key, got, there)
	case err != nil && !objectstore.IsIndefinite(err) && there:
		s.Errorf("put %s: %v is definite, and the object is there", key, err)
	}
	if read, _, err := store.Get(s.ctx, key); err == nil && string(read) != body {
		s.Errorf("get %s: %q, want %q", key, read, body)
	} else if errors.Is(err, objectstore.ErrNotFound) && there {
		s.Errorf("get %s: %v, and it is there", key, err)
	}
	if page, err := store.List(s.ctx, key, "", 10); err == nil && there != (len(page.Objects) > 0 && page.Objects[0].Key == key) {
		s.Errorf("list %s: %+v, the object is there: %v", key, page, there)
	}
	err = store.Delete(s.ctx, key)
	if _, still := s.server.Body(key); err == nil && still {
		s.Errorf("delete %s succeeded, and it is there", key)
	}
}
