package journal

import (
	"context"

	"github.com/forebaymq/forebay/metadata"
)

// lanes is how many writes of one subscription a process can have under way. In one lane they are in order, and each lane is a writer of its own:
// no two writes under way have a key in common.
const lanes = 4

// laneSet is a set of lanes.
type laneSet uint8

const (
	allLanes laneSet = 1<<lanes - 1
	claim    laneSet = 1 << lanes // of who wants all lanes
)

// lane takes the lowest lane that is free for all of the subscriptions, and waits until there is one.
func (j *Journal) lane(ctx context.Context, ids []metadata.SubscriptionID) (lane int, release func(), err error) {
	take := func(busy laneSet) laneSet {
		if busy&claim != 0 {
			return 0
		}
		return ^busy & -^busy & allLanes // the lowest that is not busy
	}
	set, release, err := j.takeLanes(ctx, ids, take)
	for set > 1 {
		set >>= 1
		lane++
	}
	return lane, release, err
}

// everyLane waits until nobody writes the subscription, and keeps others from it: from the moment on at which it has the claim, no write begins.
func (j *Journal) everyLane(ctx context.Context, id metadata.SubscriptionID) (release func(), err error) {
	ids, held := []metadata.SubscriptionID{id}, laneSet(0)
	for held != allLanes|claim {
		set, _, err := j.takeLanes(ctx, ids, func(busy laneSet) laneSet {
			if held == 0 {
				return claim &^ busy
			}
			return allLanes &^ busy
		})
		if err != nil {
			j.giveLanes(ids, held)
			return nil, err
		}
		held |= set
	}
	return func() { j.giveLanes(ids, held) }, nil
}

// takeLanes takes what choose gives for the lanes that are busy, for all the subscriptions at once: two calls cannot wait for each other.
func (j *Journal) takeLanes(ctx context.Context, ids []metadata.SubscriptionID, choose func(busy laneSet) laneSet) (laneSet, func(), error) {
	for {
		j.mu.Lock()
		var busy laneSet
		for _, id := range ids {
			busy |= j.mu.busy[id]
		}
		set := choose(busy)
		if set != 0 {
			for _, id := range ids {
				j.mu.busy[id] |= set
			}
			j.mu.Unlock()
			return set, func() { j.giveLanes(ids, set) }, nil
		}
		wait := j.mu.released
		j.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return 0, nil, context.Cause(ctx)
		}
	}
}

func (j *Journal) giveLanes(ids []metadata.SubscriptionID, set laneSet) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, id := range ids {
		if left := j.mu.busy[id] &^ set; left == 0 {
			delete(j.mu.busy, id)
		} else {
			j.mu.busy[id] = left
		}
	}
	close(j.mu.released)
	j.mu.released = make(chan struct{})
}
