package journal

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/forebaymq/forebay/metadata"
)

func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := open(t, newMemLog(), nil)
		ids := func(ids ...metadata.SubscriptionID) []metadata.SubscriptionID { return ids }
		releases := map[int]func(){}
		for want := range lanes {
			lane, release, err := j.lane(t.Context(), ids(1, 2, 1))
			if err != nil || lane != want {
				t.Fatalf("lane %d, %v, want %d", lane, err, want)
			}
			releases[lane] = release
		}
		if lane, release, err := j.lane(t.Context(), ids(3)); err != nil || lane != 0 {
			t.Fatalf("another subscription: lane %d, %v", lane, err)
		} else {
			release()
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := j.lane(ctx, ids(2)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}

		// All lanes are wanted, by two; a writer comes after them.
		order := make(chan string, 3)
		for range 2 {
			go func() {
				release, err := j.everyLane(t.Context(), 2)
				if err != nil {
					t.Error(err)
				}
				order <- "all"
				release()
			}()
		}
		synctest.Wait()
		releases[2]()
		synctest.Wait()
		go func() {
			_, release, err := j.lane(t.Context(), ids(2))
			if err != nil {
				t.Error(err)
			}
			order <- "one"
			release()
		}()
		synctest.Wait()
		if len(order) != 0 {
			t.Fatalf("%s went ahead while lanes were taken", <-order)
		}
		releases[0]()
		releases[1]()
		releases[3]()
		synctest.Wait()
		if first := <-order; first != "all" {
			t.Errorf("first was %s: a claim of all lanes has been overtaken", first)
		}
		<-order
		<-order

		// A claim that is given up leaves nothing behind.
		_, release, err := j.lane(t.Context(), ids(2))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := j.everyLane(ctx, 2)
			done <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		release()
		if n := len(j.mu.busy); n != 0 {
			t.Errorf("%d subscriptions are still busy", n)
		}
	})
}
