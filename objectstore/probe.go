package objectstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
)

// ProbeError says which feature a store lacks without which Forebay would lose or double data. It is not cured by trying again.
type ProbeError struct {
	Feature string // e.g. "conditional create (If-None-Match: *)"
	Detail  string // what was seen
}

func (e *ProbeError) Error() string {
	return fmt.Sprintf("object store lacks %s: %s", e.Feature, e.Detail)
}

// What Probe asks for.
const (
	featureCreate = "conditional create (If-None-Match: *)"
	featureRead   = "reads and lists that show every finished write"
	featureRange  = "range reads"
	featureDelete = "deletes that show at once"
)

const probeRacers = 20

// Probe checks at start-up that a store does what Forebay relies on: it creates an object twice, creates another by 20 writers at
// once, reads, lists, and deletes. A missing feature is a *ProbeError; other errors mean that the probe could not be made. The
// objects have random names under prefix (which should end in a slash) and are removed, also when the probe fails.
func Probe(ctx context.Context, s Store, prefix string) (err error) {
	p := probe{s: s, prefix: prefix + "probe-" + rand.Text()}
	defer func() {
		// The objects must go even if ctx ended during the probe.
		if delErr := s.Delete(context.WithoutCancel(ctx), p.key("twice"), p.key("race")); delErr != nil && err == nil {
			err = fmt.Errorf("probe object store: %w", delErr)
		}
	}()
	for _, step := range []func(context.Context) error{p.twice, p.race, p.delete} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("probe object store: %w", err)
		}
	}
	return nil
}

type probe struct {
	s      Store
	prefix string
}

func (p probe) key(name string) string { return p.prefix + "-" + name }

// twice creates one object two times, with different IDs and bodies, and reads it in every way.
func (p probe) twice(ctx context.Context) error {
	key, first, second := p.key("twice"), []byte("first writer"), []byte("second writer")
	if _, err := p.s.PutIfAbsent(ctx, key, first, "probe-1"); err != nil {
		return err
	}
	switch _, err := p.s.PutIfAbsent(ctx, key, second, "probe-2"); {
	case err == nil:
		return &ProbeError{Feature: featureCreate, Detail: "creating an object that exists succeeded"}
	case !errors.Is(err, ErrExists):
		return err
	}
	body, info, err := p.s.Get(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		return &ProbeError{Feature: featureRead, Detail: "an object that was just written is not found"}
	case err != nil:
		return err
	case bytes.Equal(body, second):
		return &ProbeError{Feature: featureCreate, Detail: "creating an object that exists was refused and replaced it all the same"}
	case !bytes.Equal(body, first) || info.Size != int64(len(first)):
		return &ProbeError{Feature: featureRead, Detail: fmt.Sprintf("an object of %d bytes came back as %d others", len(first), len(body))}
	}
	if _, err := p.s.PutIfAbsent(ctx, key, first, "probe-1"); errors.Is(err, ErrExists) {
		return &ProbeError{Feature: "writers' IDs kept with objects (user metadata)", Detail: "a repeated create by the same writer is not recognised"}
	} else if err != nil {
		return err
	}
	part, err := p.s.GetRange(ctx, key, 1, 4)
	if err != nil {
		return err
	}
	tail, _, err := p.s.GetTail(ctx, key, 6)
	if err != nil {
		return err
	}
	if !bytes.Equal(part, first[1:5]) || !bytes.Equal(tail, first[len(first)-6:]) {
		return &ProbeError{Feature: featureRange, Detail: fmt.Sprintf("bytes 1 to 4 are %q, the last 6 are %q, of %q", part, tail, first)}
	}
	page, err := p.s.List(ctx, p.prefix, "", MaxListKeys)
	if err != nil {
		return err
	}
	if len(page.Objects) != 1 || page.Objects[0].Key != key {
		return &ProbeError{Feature: featureRead, Detail: fmt.Sprintf("a list shows %d objects, want the one just written", len(page.Objects))}
	}
	return nil
}

// race creates one object by many writers at once: one must succeed, and the object must be its.
func (p probe) race(ctx context.Context) error {
	key := p.key("race")
	id := func(i int) string { return fmt.Sprintf("probe-racer-%02d", i) }
	var errs [probeRacers]error
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			<-start
			_, errs[i] = p.s.PutIfAbsent(ctx, key, []byte(id(i)), id(i))
		})
	}
	close(start)
	wg.Wait()
	var winners []string
	var other error
	for i, err := range errs {
		switch {
		case err == nil:
			winners = append(winners, id(i))
		case !errors.Is(err, ErrExists) && !errors.Is(err, ErrConflict):
			other = err
		}
	}
	if len(winners) > 1 {
		return &ProbeError{Feature: featureCreate, Detail: fmt.Sprintf("%d of %d concurrent creates of one object succeeded", len(winners), probeRacers)}
	}
	if other != nil {
		return other // an unknown outcome could be the winner
	}
	if len(winners) == 0 {
		return &ProbeError{Feature: featureCreate, Detail: fmt.Sprintf("none of %d concurrent creates of one object succeeded", probeRacers)}
	}
	body, _, err := p.s.Get(ctx, key)
	if err != nil {
		return err
	}
	if string(body) != winners[0] {
		return &ProbeError{Feature: featureCreate, Detail: fmt.Sprintf("%s was told that it created the object, which is %q", winners[0], body)}
	}
	return nil
}

// delete removes both objects and sees them gone.
func (p probe) delete(ctx context.Context) error {
	if err := p.s.Delete(ctx, p.key("twice"), p.key("race")); err != nil {
		return err
	}
	if _, err := p.s.Stat(ctx, p.key("twice")); !errors.Is(err, ErrNotFound) {
		if err != nil {
			return err
		}
		return &ProbeError{Feature: featureDelete, Detail: "a deleted object is still there"}
	}
	return nil
}
