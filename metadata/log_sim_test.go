package metadata_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/ingest"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metafault"
)

// What the log is for.
var (
	_ ingest.Committer = (*metadata.Log)(nil)
	_ fetch.View       = (*metadata.Log)(nil)
)

// Three nodes over a store whose calls fail, whose answers are lost and whose watches break, by seed, with a housekeeper that truncates all
// the time, and with nodes that are cut off for seconds. No offset is given twice, what is acknowledged is there, a refused commit is not, and all agree at the end.
func TestSimulation(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
		})
	}
}

type outcome struct {
	base    int64
	records int32
	code    api.Code // "" = acknowledged
}

func simulate(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	f := newFabric(t)
	setup := f.open()
	topic := setup.topic(t, "acme", "orders", 2)
	setup.close()
	rates := metafault.Rates{Refused: 0.05, Lost: 0.1, Broken: 0.05, MaxDelay: 20 * time.Millisecond}
	var mu sync.Mutex
	var outcomes []outcome
	var wg sync.WaitGroup
	nodes := make([]*node, 3)
	for i := range nodes {
		nodes[i] = f.open(house(3), func(o *metadata.Options) { o.HousekeepEvery = 200 * time.Millisecond })
		nodes[i].faults.SetHook(metafault.Random(seed*31+uint64(i), rates))
		pause := time.Duration(rng.Int64N(int64(30 * time.Millisecond)))
		wg.Go(func() {
			for range 40 {
				records := int32(1 + len(outcomesOf(&mu, &outcomes))%3)
				o := outcome{records: records}
				p := nodes[i].SubmitCommit(commitOf(batch{topic, 0, records}))
				<-p.Done()
				r, err := p.Result()
				if err == nil {
					err = r[0].Err
				}
				if err != nil {
					o.code = api.CodeOf(err)
				} else {
					o.base = r[0].Base
				}
				mu.Lock()
				outcomes = append(outcomes, o)
				mu.Unlock()
				if o.code == "" {
					// What is acknowledged is seen by the next linearizable read of another node.
					other := nodes[(i+1)%3]
					if err := other.Sync(t.Context()); err == nil {
						if info, err := other.Partition(topic.ID, 0); err != nil || info.Head < o.base+int64(records) {
							t.Errorf("node %d acknowledged %d+%d, node %d shows head %d, %v", i, o.base, records, (i+1)%3, info.Head, err)
						}
					}
				}
				time.Sleep(pause)
			}
		})
		cutAt, cutFor := time.Duration(rng.Int64N(int64(3*time.Second))), time.Duration(rng.Int64N(int64(8*time.Second)))
		wg.Go(func() {
			time.Sleep(cutAt)
			nodes[i].mem.SetReachable(false)
			time.Sleep(cutFor)
			nodes[i].mem.SetReachable(true)
		})
	}
	wg.Wait()
	for _, n := range nodes {
		n.faults.SetHook(nil)
	}
	time.Sleep(30 * time.Second)
	taken := map[int64]bool{}
	var acked, unknown, last int64
	for _, o := range outcomes {
		switch o.code {
		case "":
			for off := o.base; off < o.base+int64(o.records); off++ {
				if taken[off] {
					t.Errorf("offset %d was given twice", off)
				}
				taken[off] = true
			}
			acked += int64(o.records)
			last = max(last, o.base+int64(o.records))
		case api.CodeOutcomeUnknown:
			unknown += int64(o.records)
		case api.CodeMetadataUnavailable:
		default:
			t.Errorf("outcome %s", o.code)
		}
	}
	late := f.open()
	head := late.head(t, topic, 0)
	if head < acked || head > acked+unknown || head < last {
		t.Errorf("head %d, with %d records acknowledged and %d unknown: a refused commit was stored, or an acknowledged one is not", head, acked, unknown)
	}
	for _, n := range nodes {
		sameState(t, n, late)
	}
	if acked == 0 {
		t.Error("nothing was acknowledged")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := late.Sync(ctx); err != nil {
		t.Error(err)
	}
}

func outcomesOf(mu *sync.Mutex, list *[]outcome) []outcome {
	mu.Lock()
	defer mu.Unlock()
	return *list
}
