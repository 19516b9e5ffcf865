package fetch

import "context"

// ReadWait implements Reader. It subscribes before it looks, so that a record that comes between the look and the wait ends the wait.
func (f *Fetcher) ReadWait(ctx context.Context, r ReadRequest, wait Waiter) (*ReadResult, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r.Offset < 0 {
		// Earliest and Latest are resolved once: a wait for the latest is a wait for what comes after this moment.
		res, err := f.Read(ctx, r)
		if err != nil || len(res.Records) > 0 {
			return res, err
		}
		r.Offset, r.Stale = res.NextOffset, true
	}
	for {
		res, moved, err := f.await(ctx, r, wait)
		if !moved || err != nil || len(res.Records) > 0 {
			return res, err
		}
		// What this node has applied includes all that the first read saw, and the subscription saw more: no second barrier.
		r.Offset, r.Stale = res.NextOffset, true
	}
}

// await looks, and if there is nothing, waits for a change of the partition. moved is false when the wait is over.
func (f *Fetcher) await(ctx context.Context, r ReadRequest, wait Waiter) (res *ReadResult, moved bool, err error) {
	changed, release := f.o.View.Changed(r.TopicID, r.Partition, r.Offset)
	defer release()
	res, err = f.Read(ctx, r)
	if err != nil || len(res.Records) > 0 {
		return res, false, err
	}
	if res.NextOffset > r.Offset { // a hole was passed: subscribe from there
		return res, true, nil
	}
	select {
	case <-changed:
		return res, true, nil
	case <-wait:
		return res, false, nil
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
}
