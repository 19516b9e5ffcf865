package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/internal/redistest"
	"github.com/forebaymq/forebay/metadata"
)

// TestGroupCallsTogether: of calls that are sent together each has its own answer, also when Redis has lost the scripts before.
func TestGroupCallsTogether(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		const all = 150
		g, ctx := r.groups(), t.Context()
		together := func(f func(id metadata.GroupID)) {
			var wg sync.WaitGroup
			for i := range all {
				wg.Go(func() { f(metadata.GroupID(i + 1)) })
			}
			wg.Wait()
		}
		member := func(id metadata.GroupID) string { return fmt.Sprintf("m%d", id) }
		together(func(id metadata.GroupID) {
			if err := g.Publish(ctx, id, int64(id), []byte(member(id)), []GroupSession{{Member: member(id), Session: time.Hour}}); err != nil {
				t.Error(err)
			}
		})
		for range 2 {
			if err := r.raw.ScriptFlush(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			together(func(id metadata.GroupID) {
				l, err := g.Look(ctx, id, 0, true, member(id), member(id+1))
				if err != nil || !l.Found || l.Generation != int64(id) || string(l.State) != member(id) || l.Expires[0] == 0 || l.Expires[1] != 0 {
					t.Errorf("group %d: %+v %v", id, l, err)
				}
				at := []GroupPosition{{Topic: 1, Partition: int32(id), Offset: int64(id)}}
				if err := g.SetPositions(ctx, id, int64(id), "w", at); err != nil {
					t.Error(err)
				}
				if err := g.SetPositions(ctx, id, int64(id)-1, "x", at); !errors.Is(err, ErrStale) {
					t.Error(err)
				}
				at[0].Offset = 0
				if err := g.Positions(ctx, id, at); err != nil || at[0].Offset != int64(id) {
					t.Error(at, err)
				}
			})
		}
	})
}

// TestGroupCallEndsWithItsContext: Redis that does not answer holds nobody up longer than he wants to wait, and whoever waits for others to come
// back is answered when it goes on.
func TestGroupCallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := (&rig{t: t, s: mustStore(t, Options{URL: server.URL()})}).groups()
	if _, err := g.Look(t.Context(), 1, 0, false); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	ctx, cancel := context.WithCancel(t.Context())
	var left, stayed sync.WaitGroup
	var sent, queued atomic.Int32
	for range 20 {
		left.Go(func() {
			var unknown *unknownError
			_, err := g.Look(ctx, 1, 0, false)
			switch {
			case api.CodeOf(err) != api.CodeLeasesUnavailable:
				t.Error(err)
			case errors.As(err, &unknown):
				sent.Add(1)
			case errors.Is(err, errQueued):
				queued.Add(1)
			default:
				t.Error(err)
			}
		})
		stayed.Go(func() {
			if _, err := g.Look(t.Context(), 1, 0, false); err != nil {
				t.Error(err)
			}
		})
	}
	cancel()
	left.Wait()
	// Of what was given up, only what was under way may have an effect.
	if sent.Load() > maxPipes*2 || queued.Load() == 0 {
		t.Errorf("%d were sent, %d were not", sent.Load(), queued.Load())
	}
	server.Resume()
	stayed.Wait()
}
