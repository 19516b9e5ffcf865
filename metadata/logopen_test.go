package metadata_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metafault"
	"github.com/forebaymq/forebay/objectstore/mem"
)

// Nodes and etcd members start together: a node that finds no quorum yet waits for it, and gives up when its context ends.
func TestOpenWaitsForAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := metadata.NewMemDriver(metadata.MemOptions{})
		defer driver.Close()
		store := mem.New(mem.Options{})
		open := func(ctx context.Context, answers ...metafault.Action) (*metafault.Driver, *metadata.Log, error) {
			f := metafault.Wrap(driver.Peer(), nil, nil)
			f.SetHook(func(c metafault.Call) metafault.Action {
				if c.Op == metafault.Init && c.N <= len(answers) {
					return answers[c.N-1]
				}
				return metafault.Action{}
			})
			l, err := metadata.Open(ctx, metadata.Options{Driver: f, Store: store, NodeID: "n", Region: "here", NoHousekeeping: true})
			return f, l, err
		}
		begin := time.Now()
		f, l, err := open(t.Context(), metafault.Action{Err: metadata.ErrNoQuorum}, metafault.Action{Lost: true}, metafault.Action{Err: metadata.ErrNoQuorum})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		if n := f.Calls(metafault.Init); n != 4 || time.Since(begin) == 0 {
			t.Errorf("%d attempts in %s, want 4 with waits between", n, time.Since(begin))
		}
		if err := errors.Join(l.Close(), f.Close()); err != nil {
			t.Error(err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		forever := make([]metafault.Action, 100)
		for i := range forever {
			forever[i].Err = metadata.ErrNoQuorum
		}
		f, _, err = open(ctx, forever...)
		if !errors.Is(err, metadata.ErrNoQuorum) {
			t.Errorf("open without a quorum: %v", err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}
