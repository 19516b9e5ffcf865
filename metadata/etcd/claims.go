package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/forebaymq/forebay/metadata"
)

// releaseTimeout bounds the revocation of a lease when a claim ends. If it fails, the lease runs out by itself.
const releaseTimeout = 2 * time.Second

// Claim implements metadata.Driver: a lease, and a key with it that is created if absent. The epoch is the key's create revision. etcd
// counts leases in whole seconds, and may raise a short one to its minimum.
func (d *Driver) Claim(ctx context.Context, name, holder string, ttl time.Duration) (*metadata.HeldClaim, bool, error) {
	if name == "" || holder == "" || ttl <= 0 {
		return nil, false, errors.New("claim: name, holder and a positive ttl are needed")
	}
	if err := d.open(ctx); err != nil {
		return nil, false, err
	}
	key := d.keys.claim(name)
	cur, err := d.c.Get(leader(ctx), key, clientv3.WithKeysOnly())
	if err != nil {
		return nil, false, fmt.Errorf("claim %s: %w", name, classifyRead(err))
	}
	if len(cur.Kvs) > 0 {
		return nil, false, nil // the usual case, without a lease made for nothing
	}
	asked := d.clock.Now()
	lease, err := d.c.Grant(leader(ctx), int64((ttl+time.Second-1)/time.Second))
	if err != nil {
		return nil, false, fmt.Errorf("claim %s: grant lease: %w", name, classifyRead(err))
	}
	r, err := d.c.Txn(leader(ctx)).If(absent(key)).Then(clientv3.OpPut(key, holder, clientv3.WithLease(lease.ID))).Commit()
	if err != nil || !r.Succeeded {
		// After a lost answer the key may be there: revoking the lease takes it away again.
		_ = d.revoke(ctx, lease.ID) // if this fails too, the lease runs out
		if err != nil {
			return nil, false, fmt.Errorf("claim %s: %w", name, classifyWrite(err))
		}
		return nil, false, nil
	}
	k := &keeper{lease: lease.ID, done: make(chan struct{})}
	kctx, cancel := context.WithCancel(d.ctx)
	k.cancel = cancel
	d.keepers.Lock()
	d.keepers.m[r.Header.Revision] = k
	d.keepers.Unlock()
	d.wg.Go(func() {
		defer close(k.done)
		defer cancel()
		d.keep(kctx, k.lease, asked, time.Duration(lease.TTL)*time.Second)
	})
	return &metadata.HeldClaim{Name: name, Epoch: r.Header.Revision, Done: k.done}, true, nil
}

// keeper keeps one claim's lease alive.
type keeper struct {
	lease  clientv3.LeaseID
	cancel context.CancelFunc
	done   chan struct{}
}

// keepers are the claims of this driver, by epoch, until they are released.
type keepers struct {
	sync.Mutex
	m map[int64]*keeper
}

func (ks *keepers) take(epoch int64) *keeper {
	ks.Lock()
	defer ks.Unlock()
	k := ks.m[epoch]
	delete(ks.m, epoch)
	return k
}

// keep renews a lease at a third of its life, until that is refused, its deadline passes, or the driver closes. The deadline counts from
// before the last successful renewal was sent, on this node's monotonic clock, and ends a tenth of its life early: so the
// holder knows that it has lost the claim before the store gives it to another.
func (d *Driver) keep(ctx context.Context, id clientv3.LeaseID, sent time.Time, ttl time.Duration) {
	deadline := sent.Add(ttl - ttl/10)
	pause := ttl / 3
	for {
		select {
		case <-d.clock.After(min(pause, d.clock.Until(deadline))):
		case <-ctx.Done():
			return
		}
		now := d.clock.Now()
		if !now.Before(deadline) {
			return
		}
		once, cancel := context.WithTimeout(leader(ctx), deadline.Sub(now))
		r, err := d.c.KeepAliveOnce(once, id)
		cancel()
		switch {
		case err == nil:
			deadline = now.Add(time.Duration(r.TTL)*time.Second - ttl/10)
			pause = ttl / 3
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			return
		default:
			d.log.Debug("cannot renew a claim's lease", "error", err)
			pause = ttl / 20
		}
	}
}

// revoke gives a lease up, and its key with it, also when ctx has ended.
func (d *Driver) revoke(ctx context.Context, id clientv3.LeaseID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if _, err := d.c.Revoke(ctx, id); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("revoke lease: %w", err)
	}
	return nil
}

// Release implements metadata.Driver. It stops the renewals first; so if the revocation fails, the lease runs out by itself.
func (d *Driver) Release(ctx context.Context, c *metadata.HeldClaim) error {
	k := d.keepers.take(c.Epoch)
	if k == nil {
		return nil // released before
	}
	k.cancel()
	<-k.done
	if err := d.revoke(ctx, k.lease); err != nil {
		return fmt.Errorf("release claim %s: %w", c.Name, err)
	}
	return nil
}

// releaseAll gives every claim back when the driver closes.
func (d *Driver) releaseAll() {
	d.wg.Wait()
	d.keepers.Lock()
	defer d.keepers.Unlock()
	for epoch, k := range d.keepers.m {
		delete(d.keepers.m, epoch)
		if err := d.revoke(d.ctx, k.lease); err != nil {
			d.log.Debug("a claim is not given back, its lease runs out by itself", "error", err)
			return // the store is away: do not wait for each of them
		}
	}
}
