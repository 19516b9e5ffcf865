package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/forebaymq/forebay/compactor"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/faults"
	"github.com/forebaymq/forebay/objectstore/metrics"
	"github.com/forebaymq/forebay/objectstore/open"
	"github.com/forebaymq/forebay/objectstore/retry"
)

// probePrefix is where the start-up probe makes and removes its objects.
const probePrefix = "probe/"

// openStore opens the driver and wraps it: faults beneath everything, so that they look like the store's own; metrics above them, so that
// every request counts, also one that failed; retries on top.
func openStore(ctx context.Context, c Config) (objectstore.Store, error) {
	driver := objectstore.Store(lent{c.Store})
	if c.Store == nil {
		var err error
		if driver, err = open.Open(ctx, c.ObjectStore, open.Options{Clock: c.Clock, Logger: c.Logger}); err != nil {
			return nil, err
		}
	}
	store, err := wrapStore(ctx, driver, c)
	if err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	s := &nodeStore{Store: store}
	if l, ok := driver.(lent); ok {
		driver = l.Store
	}
	s.lifecycle, _ = driver.(objectstore.LifecycleStore)
	if err := checkRules(ctx, s.lifecycle, c); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return s, nil
}

// checkRules refuses a bucket whose rules would make data unreadable. Where the rules cannot be read, the collector goes on trying.
func checkRules(ctx context.Context, l objectstore.LifecycleStore, c Config) error {
	if l == nil {
		return nil
	}
	err := compactor.CheckRules(ctx, l)
	if e := (*compactor.ArchiveRuleError)(nil); errors.As(err, &e) {
		return err
	}
	if err != nil {
		c.Logger.Warn("cannot see whether lifecycle rules of the bucket endanger data", "error", err)
	}
	return nil
}

// nodeStore is the wrapped store, with what the driver can do beside the contract.
type nodeStore struct {
	objectstore.Store
	lifecycle objectstore.LifecycleStore // nil: the store has no rules
}

// lent is a store that its owner closes.
type lent struct{ objectstore.Store }

// Close does nothing.
func (lent) Close() error { return nil }

func wrapStore(ctx context.Context, driver objectstore.Store, c Config) (objectstore.Store, error) {
	retries := retry.Options{Registerer: c.Registry, Clock: c.Clock}
	plain, err := retry.New(driver, retries)
	if err != nil {
		return nil, err
	}
	// A store that ignores conditions would lose or double data: better not to start. The store itself is asked, without faults.
	if err := objectstore.Probe(ctx, plain, probePrefix); err != nil {
		return nil, err
	}
	if c.StoreFaults != "" {
		plan, err := faults.Parse(c.StoreFaults)
		if err != nil {
			return nil, fmt.Errorf("store-faults: %w", err)
		}
		c.Logger.Warn("the object store is made to fail, as store-faults says", "faults", c.StoreFaults)
		if driver, err = faults.New(driver, faults.Options{Plan: plan, Clock: c.Clock}); err != nil {
			return nil, fmt.Errorf("store-faults: %w", err)
		}
	}
	counted, err := metrics.New(driver, metrics.Options{Registerer: c.Registry, Clock: c.Clock})
	if err != nil {
		return nil, err
	}
	return retry.New(counted, retries)
}
