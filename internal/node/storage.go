package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/forebaymq/forebay/compactor"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
)

// openLog joins the fabric.
func openLog(ctx context.Context, c Config, d metadata.Driver, s objectstore.Store) (*metadata.Log, error) {
	log, err := metadata.Open(ctx, metadata.Options{
		Driver: d, Store: s, NodeID: c.NodeID, Shards: c.Shards, Region: c.Region,
		Clock: c.Clock, Logger: c.Logger, Registerer: c.Registry, Entropy: c.Random,
		SnapshotEvery: c.Housekeep.Snapshot, HousekeepEvery: c.Housekeep.Every, NoHousekeeping: c.Housekeep.Off, GCGrace: c.Compaction.Collect.Grace,
		TrimInterval: c.Compaction.RetentionEvery,
	})
	if err != nil {
		return nil, fmt.Errorf("open metadata log: %w", err)
	}
	return log, nil
}

// newCompactor makes the compactor of a node. With Compaction.Off it still answers reports, and is not started.
func newCompactor(c Config, log *metadata.Log, store objectstore.Store) (*compactor.Compactor, error) {
	var lifecycle objectstore.LifecycleStore
	if s, ok := store.(*nodeStore); ok {
		lifecycle = s.lifecycle
	}
	k, err := compactor.New(compactor.Options{
		Log: log, Store: store, Lifecycle: lifecycle, Policy: c.Compaction.Policy, Collect: c.Compaction.Collect, Workers: c.Compaction.Workers,
		Every: c.Compaction.Every, CleanEvery: c.Compaction.CleanEvery, MoveEvery: 2 * c.Compaction.RetentionEvery, ClaimTTL: c.Compaction.ClaimTTL, Off: c.Compaction.Off, Clock: c.Clock, Logger: c.Logger, Registerer: c.Registry, Entropy: c.Random,
	})
	if err != nil {
		return nil, fmt.Errorf("make compactor: %w", err)
	}
	return k, nil
}

// Storage is the lower half of a node: object store, metadata log and compactor, for tools that serve no requests.
type Storage struct {
	Store     objectstore.Store
	Log       *metadata.Log
	Compactor *compactor.Compactor // not started
	driver    metadata.Driver      // nil where the caller owns it
}

// OpenStorage opens the storage that c describes; what c says of listening and tokens is not looked at.
func OpenStorage(ctx context.Context, c Config) (s *Storage, err error) {
	c = c.WithDefaults()
	v := &findings{}
	c.validateStorage(v)
	if err := v.err(); err != nil {
		return nil, fmt.Errorf("storage configuration: %w", err)
	}
	starting, cancel := context.WithTimeoutCause(ctx, c.StartupTimeout, fmt.Errorf("the storage was not open within %s", c.StartupTimeout))
	defer cancel()
	s = &Storage{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	if s.Store, err = openStore(starting, c); err != nil {
		return s, err
	}
	d, err := openDriver(starting, c)
	if err != nil {
		return s, err
	}
	if c.Driver == nil {
		s.driver = d
	}
	if s.Log, err = openLog(starting, c, d, s.Store); err != nil {
		return s, err
	}
	s.Compactor, err = newCompactor(c, s.Log, s.Store)
	return s, err
}

// Close ends it, from the top down.
func (s *Storage) Close() error {
	var errs []error
	if s.Compactor != nil {
		errs = append(errs, s.Compactor.Close())
	}
	if s.Log != nil {
		errs = append(errs, s.Log.Close())
	}
	if s.driver != nil {
		errs = append(errs, s.driver.Close())
	}
	if s.Store != nil {
		errs = append(errs, s.Store.Close())
	}
	return errors.Join(errs...)
}
