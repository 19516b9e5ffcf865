package journal

import (
	"context"
	"fmt"

	"github.com/forebaymq/forebay/metadata"
)

// PutTask keeps a redrive, in place of what was kept of it before. Two writers of one task overtake one another as they like: a task should have one.
func (j *Journal) PutTask(ctx context.Context, tenant string, t Task) error {
	value, err := encodeTask(&t)
	if err == nil {
		err = j.writeTask(ctx, tenant, t.Subscription, t.ID, value)
	}
	if err != nil {
		return fmt.Errorf("put task %s: %w", t.ID, err)
	}
	return nil
}

// RemoveTask forgets a redrive. One that is not there is no error.
func (j *Journal) RemoveTask(ctx context.Context, tenant string, id metadata.SubscriptionID, task string) error {
	if err := j.writeTask(ctx, tenant, id, task, nil); err != nil {
		return fmt.Errorf("remove task %s: %w", task, err)
	}
	return nil
}

func (j *Journal) writeTask(ctx context.Context, tenant string, id metadata.SubscriptionID, task string, value []byte) error {
	if task == "" || len(task) > maxTaskID {
		return fmt.Errorf("an ID of %d bytes", len(task))
	}
	k := key{kind: kindTask, subscription: id, task: task}
	_, err := j.append(ctx, tenant, []Record{{Partition: partitionOf(id, j.o.Partitions), Key: k.encode(), Value: value}})
	return err
}

// DropSubscription removes everything of a subscription that is deleted. What another node is still writing of it stays, a few records that nobody
// reads: IDs are never used again. A second call removes that too.
func (j *Journal) DropSubscription(ctx context.Context, tenant string, id metadata.SubscriptionID) error {
	release, err := j.everyLane(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	all, err := j.records(ctx, tenant, id)
	if err == nil {
		keys := make([]string, len(all))
		for i := range all {
			keys[i] = all[i].key
		}
		err = j.free(ctx, tenant, id, keys)
	}
	if err != nil {
		return fmt.Errorf("drop subscription %d: %w", id, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.notes.drop(id)
	return nil
}
