package metadata_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metafault"
	"github.com/forebaymq/forebay/metadata/metatest"
)

func TestMemDriver(t *testing.T) {
	metatest.Run(t, func(*testing.T) metatest.Cluster {
		d := metadata.NewMemDriver(metadata.MemOptions{})
		return metatest.ClusterFunc(func(*testing.T) metadata.Driver { return d.Peer() })
	})
}

// The wrapper without faults is as good as what it wraps.
func TestFaultDriverConforms(t *testing.T) {
	metatest.Run(t, func(*testing.T) metatest.Cluster {
		d := metadata.NewMemDriver(metadata.MemOptions{})
		return metatest.ClusterFunc(func(*testing.T) metadata.Driver { return metafault.Wrap(d.Peer(), nil, nil) })
	})
}

// A holder that cannot reach the store gives up before the store gives its claim away, and cannot write after that.
func TestMemClaimRunsOutWithoutItsHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := metadata.NewMemDriver(metadata.MemOptions{})
		b := a.Peer()
		defer func() { _ = a.Close(); _ = b.Close() }()
		const ttl = 9 * time.Second
		claim, held, err := a.Claim(t.Context(), "house", "a", ttl)
		if err != nil || !held {
			t.Fatalf("claim: %v, %v", held, err)
		}
		cut := time.Now()
		a.SetReachable(false)
		if _, err := a.Head(t.Context()); !errors.Is(err, metadata.ErrNoQuorum) {
			t.Errorf("head while cut: %v", err)
		}
		<-claim.Done
		if gone := time.Since(cut); gone >= ttl {
			t.Errorf("the holder gave up after %s, the store after %s", gone, ttl)
		}
		if _, held, _ := b.Claim(t.Context(), "house", "b", ttl); held {
			t.Error("the store gave the claim away before its ttl")
		}
		time.Sleep(ttl - time.Since(cut)) // virtual time
		synctest.Wait()
		next, held, err := b.Claim(t.Context(), "house", "b", ttl)
		if err != nil || !held || next.Epoch <= claim.Epoch {
			t.Fatalf("claim of the successor: %+v, %v, %v", next, held, err)
		}
		a.SetReachable(true)
		g := metadata.Guard{Claim: "house", Epoch: claim.Epoch}
		if _, err := a.Append(t.Context(), []metadata.LogEntry{{Stream: "a", Seq: 1}}, &g); !errors.Is(err, metadata.ErrClaimLost) {
			t.Errorf("write of the old holder: %v, want ErrClaimLost", err)
		}
	})
}

func TestMemClaimSurvivesAShortCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := metadata.NewMemDriver(metadata.MemOptions{})
		defer func() { _ = a.Close() }()
		claim, _, err := a.Claim(t.Context(), "house", "a", 9*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			a.SetReachable(false)
			time.Sleep(4 * time.Second) // virtual time
			a.SetReachable(true)
			time.Sleep(20 * time.Second)
		}
		select {
		case <-claim.Done:
			t.Error("the claim was lost although the holder came back in time")
		default:
		}
	})
}
