package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/forebaymq/forebay/objectstore"
)

func putTwice(s *suite) {
	first := s.put("k", []byte("first"), "id-1")
	again, err := s.store.PutIfAbsent(s.ctx, "k", []byte("first"), "id-1")
	s.want(err, nil, "put again with the same ID")
	if again.ETag != first.ETag || again.Size != 5 {
		s.Errorf("put again: %+v, the first gave %+v", again, first)
	}
	_, err = s.store.PutIfAbsent(s.ctx, "k", []byte("second"), "id-2")
	s.want(err, objectstore.ErrExists, "put with another ID")
	s.wantBody("k", []byte("first"))
	if !s.opt.ContentIDs {
		_, err = s.store.PutIfAbsent(s.ctx, "k", []byte("first"), "id-2")
		s.want(err, objectstore.ErrExists, "put of the same body with another ID")
	}
	s.want(s.store.Delete(s.ctx, "k"), nil, "delete")
	s.put("k", []byte("third"), "id-3")
	s.wantBody("k", []byte("third"))
}

// race starts n calls at once and gives their errors.
func race(n int, call func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = call(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

func putRace(s *suite) {
	const n = 20
	for round := range 5 {
		key := fmt.Sprintf("race/%d", round)
		bodies := make([][]byte, n)
		for i := range bodies {
			bodies[i] = payload(10_000+i, uint64(i))
		}
		winner := -1
		for i, err := range race(n, func(i int) error {
			for { // ErrConflict means: no effect, try again
				_, err := s.store.PutIfAbsent(s.ctx, key, bodies[i], fmt.Sprintf("id-%d", i))
				if !errors.Is(err, objectstore.ErrConflict) {
					return err
				}
			}
		}) {
			if err == nil && winner >= 0 {
				s.Fatalf("round %d: writers %d and %d both succeeded", round, winner, i)
			}
			if err == nil {
				winner = i
				continue
			}
			s.want(err, objectstore.ErrExists, "round %d: writer %d", round, i)
		}
		if winner < 0 {
			s.Fatalf("round %d: nobody succeeded", round)
		}
		s.wantBody(key, bodies[winner])
		info, err := s.store.Stat(s.ctx, key)
		s.want(err, nil, "stat")
		if want := fmt.Sprintf("id-%d", winner); !s.opt.ContentIDs && info.ID != want {
			s.Errorf("round %d: ID %q, the winner was %q", round, info.ID, want)
		}
	}
}

func putRaceSameID(s *suite) {
	body := payload(50_000, 3)
	for _, err := range race(20, func(int) error {
		for {
			_, err := s.store.PutIfAbsent(s.ctx, "same", body, "one-id")
			if !errors.Is(err, objectstore.ErrConflict) {
				return err
			}
		}
	}) {
		s.want(err, nil, "put with the ID of all")
	}
	s.wantBody("same", body)
}

func putIfMatch(s *suite) {
	first := s.put("m", []byte("one"), "id-1")
	if s.opt.NoPutIfMatch {
		_, err := s.store.PutIfMatch(s.ctx, "m", first.ETag, []byte("two"), "id-2")
		s.want(err, objectstore.ErrUnsupported, "PutIfMatch of a store that lacks it")
		s.wantBody("m", []byte("one"))
		return
	}
	_, err := s.store.PutIfMatch(s.ctx, "absent", first.ETag, []byte("x"), "id-1")
	s.want(err, objectstore.ErrNotFound, "match on an absent key")
	_, err = s.store.PutIfMatch(s.ctx, "m", "no-such-version", []byte("x"), "id-1")
	s.want(err, objectstore.ErrPreconditionFailed, "match on a wrong version")
	etags := map[string]bool{first.ETag: true}
	last := first
	for i := range 10 { // the same size each time: a version is more than a size
		body := []byte(fmt.Sprintf("%03d", i))
		next, err := s.store.PutIfMatch(s.ctx, "m", last.ETag, body, fmt.Sprintf("id-%d", i+2))
		s.want(err, nil, "match %d", i)
		if etags[next.ETag] {
			s.Fatalf("version %q was used before", next.ETag)
		}
		etags[next.ETag] = true
		s.wantBody("m", body)
		_, err = s.store.PutIfMatch(s.ctx, "m", last.ETag, []byte("x"), "late")
		s.want(err, objectstore.ErrPreconditionFailed, "match on the version before")
		s.wantBody("m", body)
		stat, err := s.store.Stat(s.ctx, "m")
		s.want(err, nil, "stat")
		if stat.ETag != next.ETag || stat.Size != 3 || !s.opt.ContentIDs && stat.ID != fmt.Sprintf("id-%d", i+2) {
			s.Fatalf("stat %+v, the put gave %+v", stat, next)
		}
		last = next
	}
	s.want(s.store.Delete(s.ctx, "m"), nil, "delete")
	_, err = s.store.PutIfMatch(s.ctx, "m", last.ETag, []byte("x"), "id-1")
	s.want(err, objectstore.ErrNotFound, "match on a deleted key")
}

// putIfMatchRace increments a counter from many goroutines: every success must count once.
func putIfMatchRace(s *suite) {
	if s.opt.NoPutIfMatch {
		return // putIfMatch has checked the refusal
	}
	const writers, each = 8, 5
	s.put("counter", []byte("0"), "init")
	for _, err := range race(writers, func(w int) error {
		for n := 0; n < each; {
			body, info, err := s.store.Get(s.ctx, "counter")
			if err != nil {
				return err
			}
			var count int
			if _, err := fmt.Sscan(string(body), &count); err != nil {
				return fmt.Errorf("counter %q: %w", body, err)
			}
			_, err = s.store.PutIfMatch(s.ctx, "counter", info.ETag, []byte(fmt.Sprint(count+1)), fmt.Sprintf("w%d-%d", w, n))
			switch {
			case err == nil:
				n++
			case !errors.Is(err, objectstore.ErrPreconditionFailed) && !errors.Is(err, objectstore.ErrConflict):
				return err
			}
		}
		return nil
	}) {
		s.want(err, nil, "increment")
	}
	s.wantBody("counter", []byte(fmt.Sprint(writers*each)))
}

func cancelled(s *suite) {
	s.put("there", []byte("x"), "w")
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, _, err := s.store.Get(ctx, "there")
	s.want(err, context.Canceled, "get")
	_, err = s.store.GetRange(ctx, "there", 0, 1)
	s.want(err, context.Canceled, "get range")
	_, _, err = s.store.GetTail(ctx, "there", 1)
	s.want(err, context.Canceled, "get tail")
	_, err = s.store.Stat(ctx, "there")
	s.want(err, context.Canceled, "stat")
	_, err = s.store.List(ctx, "", "", 10)
	s.want(err, context.Canceled, "list")
	_, err = s.store.PutIfAbsent(ctx, "new", []byte("y"), "w")
	s.want(err, context.Canceled, "put")
	if !s.opt.NoPutIfMatch {
		_, err = s.store.PutIfMatch(ctx, "there", "v", []byte("y"), "w")
		s.want(err, context.Canceled, "put if match")
	}
	err = s.store.Delete(ctx, "there")
	s.want(err, context.Canceled, "delete")
	var failed objectstore.KeyErrors
	if !errors.As(err, &failed) || failed["there"] == nil {
		s.Errorf("delete: %v, want KeyErrors with the key", err)
	}
	if got := s.keys("", 10); len(got) != 1 || got[0] != "there" {
		s.Errorf("keys %q, want only what was there before", got)
	}
}

// cancelMidway ends the context of puts at random moments: each key is then absent or whole, and what was acknowledged is there.
func cancelMidway(s *suite) {
	body := payload(s.opt.BigObject/4, 4)
	for i := range 8 {
		ctx, cancel := context.WithCancel(s.ctx)
		key := fmt.Sprintf("mid/%d", i)
		started, done := make(chan struct{}), make(chan error)
		go func() {
			close(started)
			_, err := s.store.PutIfAbsent(ctx, key, body, "w")
			done <- err
		}()
		<-started
		for range i * i * 100 { // a different moment each time, without a clock
			_ = ctx.Err()
		}
		cancel()
		err := <-done
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				s.Fatalf("put %s: %v, want context.Canceled", key, err)
			}
			if !objectstore.IsIndefinite(err) {
				_, statErr := s.store.Stat(s.ctx, key)
				s.want(statErr, objectstore.ErrNotFound, "stat after a definite failure")
			}
		}
		got, _, getErr := s.store.Get(s.ctx, key)
		if getErr == nil && !bytes.Equal(got, body) || getErr != nil && (err == nil || !errors.Is(getErr, objectstore.ErrNotFound)) {
			s.Fatalf("put %s: %v, then get: %d bytes, %v", key, err, len(got), getErr)
		}
		_, err = s.store.PutIfAbsent(s.ctx, key, body, "w")
		s.want(err, nil, "put %s again", key)
		s.wantBody(key, body)
	}
}

func probe(s *suite) {
	if err := objectstore.Probe(s.ctx, s.store, "probe/"); err != nil {
		s.Fatalf("probe: %v", err)
	}
	if got := s.keys("", 10); len(got) != 0 {
		s.Errorf("the probe left %q", got)
	}
}

func closed(s *suite) {
	s.put("k", []byte("x"), "w")
	for range 2 {
		s.want(s.store.Close(), nil, "close")
	}
	_, err := s.store.PutIfAbsent(s.ctx, "l", []byte("x"), "w")
	s.want(err, objectstore.ErrUnavailable, "put after close")
}
