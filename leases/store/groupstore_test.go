package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebaymq/forebay/metadata"
)

func (r *rig) groups() *GroupStore {
	r.t.Helper()
	g, err := NewGroupStore(r.s)
	if err != nil {
		r.t.Fatal(err)
	}
	return g
}

func TestGroupSessions(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		g, ctx := r.groups(), t.Context()
		const id = metadata.GroupID(70)
		l, err := g.Look(ctx, id, 0, true, "a")
		if err != nil || l.Found || l.Now == 0 {
			t.Fatalf("%+v %v", l, err)
		}
		state := []byte("state \x00\xff")
		sessions := []GroupSession{{Member: "a", Session: lease, Begin: true}, {Member: "b", Session: lease, Absent: true}, {Member: "c", Session: time.Hour}}
		if err := g.Publish(ctx, id, 5, state, sessions); err != nil {
			t.Fatal(err)
		}
		l, err = g.Look(ctx, id, 4, false, "a", "b", "x")
		if err != nil || !l.Found || l.Generation != 5 || string(l.State) != string(state) || l.Expires[0] < l.Now || l.Expires[1] < l.Now || l.Expires[2] != 0 {
			t.Fatalf("%+v %v", l, err)
		}
		r.advance(lease / 2)
		beat, err := g.Look(ctx, id, 5, true, "a", "b")
		if err != nil || beat.State != nil || beat.Expires[0] <= l.Expires[0] || beat.Expires[1] != l.Expires[1] {
			t.Fatalf("%+v after %+v, %v", beat, l, err)
		}
		if ids, err := g.Lapsed(ctx); err != nil || len(ids) != 0 {
			t.Fatal(ids, err)
		}
		r.advance(lease)
		// Both have lapsed, and no heartbeat helps that.
		beat, err = g.Look(ctx, id, 5, true, "a", "b", "c")
		if err != nil || beat.Expires[0] != 0 || beat.Expires[1] != 0 || beat.Expires[2] == 0 {
			t.Fatalf("%+v %v", beat, err)
		}
		if ids, err := g.Lapsed(ctx); err != nil || !slices.Equal(ids, []metadata.GroupID{id}) {
			t.Fatal(ids, err)
		}
		if ids, err := g.Lapsed(ctx); err != nil || len(ids) != 0 {
			t.Fatal("named twice within a second", ids, err)
		}
		all, err := g.Sessions(ctx, id)
		if err != nil || !all.Found || all.Generation != 5 || len(all.Expires) != 3 || all.Expires["a"] > all.Now || all.Expires["c"] < all.Now {
			t.Fatalf("%+v %v", all, err)
		}
		// c goes on, b begins anew, a is gone; a late coordinator is too late.
		if err := g.Publish(ctx, id, 6, state, []GroupSession{{Member: "b", Session: time.Hour, Begin: true}, {Member: "c", Session: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		if err := g.Publish(ctx, id, 5, state, sessions); !errors.Is(err, ErrStale) {
			t.Fatal(err)
		}
		after, err := g.Sessions(ctx, id)
		if err != nil || after.Generation != 6 || len(after.Expires) != 2 || after.Expires["c"] != all.Expires["c"] || after.Expires["b"] <= after.Now {
			t.Fatalf("%+v %v", after, err)
		}
		if err := g.Drop(ctx, id); err != nil {
			t.Fatal(err)
		}
		if keys := r.raw.Keys(ctx, "fb:*").Val(); len(keys) != 0 {
			t.Fatal(keys)
		}
	})
}

func TestGroupPositions(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		g, ctx := r.groups(), t.Context()
		const id = metadata.GroupID(3)
		if err := g.Publish(ctx, id, 1, nil, nil); err != nil {
			t.Fatal(err)
		}
		at := []GroupPosition{{Topic: 1 << 63, Partition: 2}, {Topic: 8}}
		want := func(s string) {
			t.Helper()
			if err := g.Positions(ctx, id, at); err != nil || fmt.Sprint(at[0].Offset, at[1].Offset) != s {
				t.Fatal(at, err)
			}
		}
		want("-1 -1")
		set := func(generation int64, writer string, noted ...GroupPosition) error {
			return g.SetPositions(ctx, id, generation, writer, noted)
		}
		first := []GroupPosition{{Topic: 1 << 63, Partition: 2, Offset: 7, Read: true}, {Topic: 8, Offset: 9}}
		for range 2 { // it may arrive twice
			if err := set(1, "a", first...); err != nil {
				t.Fatal(err)
			}
			want("7 9")
		}
		// Who has not seen that comes too late, as a whole; what he has not read from may stay as it is.
		if err := set(1, "b", GroupPosition{Topic: 8, Offset: 10}, GroupPosition{Topic: 1 << 63, Partition: 2, Offset: 7, Read: true}); !errors.Is(err, ErrMoved) {
			t.Fatal(err)
		}
		if err := set(1, "c", GroupPosition{Topic: 8, Offset: 10}); err != nil {
			t.Fatal(err)
		}
		want("7 9")
		late := at[1]
		late.Offset, late.Read = 12, true
		if err := g.ForgetPositions(ctx, id, "d", at[1:]); err != nil {
			t.Fatal(err)
		}
		want("7 -1")
		for _, before := range []GroupPosition{late, {Topic: 8, Offset: 12, Read: true}} { // polls that began before it was forgotten
			if err := set(1, "e", before); !errors.Is(err, ErrMoved) {
				t.Fatal(err)
			}
		}
		at[1].Offset, at[1].Read = 5, true
		if err := set(1, "f", at[1]); err != nil {
			t.Fatal(err)
		}
		want("7 5")
		if err := set(2, "g", at[0]); !errors.Is(err, ErrStale) {
			t.Fatal(err)
		}
		if err := g.Publish(ctx, id, 2, nil, nil); err != nil {
			t.Fatal(err)
		}
		want("-1 -1")
	})
}

func TestGroupLock(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		g, ctx := r.groups(), t.Context()
		lock := func(holder string) bool {
			t.Helper()
			ok, err := g.Lock(ctx, 1, holder, lease)
			if err != nil {
				t.Fatal(err)
			}
			return ok
		}
		if !lock("a") || lock("b") {
			t.Fatal("not a lock")
		}
		if err := g.Unlock(ctx, 1, "b"); err != nil || lock("b") {
			t.Fatal("a stranger unlocked it", err)
		}
		if err := g.Unlock(ctx, 1, "a"); err != nil || !lock("b") {
			t.Fatal(err)
		}
		r.advance(lease)
		if !lock("a") {
			t.Fatal("it does not end")
		}
	})
}

// Scripts that are gone are loaded again within the call; what is not a group's hash is an error and never success.
func TestGroupScriptsAreLoadedAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		g, ctx := r.groups(), t.Context()
		for range 2 {
			if err := r.raw.ScriptFlush(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			if err := g.Publish(ctx, 1, 1, []byte("x"), nil); err != nil {
				t.Fatal(err)
			}
			if err := r.raw.ScriptFlush(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			if _, err := g.Lapsed(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.raw.Set(ctx, g.key(2, keyGroupState), "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		_, err := g.Look(ctx, 2, 0, false)
		wantUnavailable(t, err)
	})
}
