package proof

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// workload is what concurrent clients do to a set of nodes.
type workload struct {
	topic      string
	partitions int
	clients    int
	ops        int // per client
	seed       uint64
	nodes      []*rest // each operation goes to one of them, drawn by the seed
	// pace is waited between two operations of a client, so that a history spans the disturbances; 0 = none.
	pace time.Duration
}

// run records what every client saw. Reads start a little below the highest head that the client has seen anywhere, so that they stay
// small and still overlap what came before.
func (w workload) run(ctx context.Context, t *testing.T, h *History) {
	t.Helper()
	var wg sync.WaitGroup
	for c := range w.clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(w.seed, uint64(c)))
			seen := make([]int64, w.partitions)
			for i := 0; i < w.ops && ctx.Err() == nil; i++ {
				p := rng.IntN(w.partitions)
				node := w.nodes[rng.IntN(len(w.nodes))]
				octx, cancel := context.WithTimeout(ctx, 8*time.Second)
				call := h.Now()
				if rng.IntN(2) == 0 {
					in := Op{Partition: p, Append: fmt.Sprintf("c%d-%d", c, i)}
					pos, _, err := node.publish(octx, w.topic, p, []string{in.Append}, nil)
					switch {
					case err == nil:
						h.Done(c, call, in, Seen{Offset: pos[0].Offset, Known: true})
						seen[p] = max(seen[p], pos[0].Offset+1)
					case maybe(err):
						h.Indefinite(c, call, in)
					}
				} else {
					from := max(0, seen[p]-int64(rng.IntN(16)))
					texts, head, err := node.readAll(octx, w.topic, p, from)
					if err == nil {
						h.Done(c, call, Op{Partition: p}, Seen{From: from, Texts: texts, Head: head})
						seen[p] = max(seen[p], head)
					} else if p416, ok := err.(*problem); ok && p416.Code == "OFFSET_OUT_OF_RANGE" {
						// A head below what this client has seen acknowledged: the answer is itself an observation.
						h.Done(c, call, Op{Partition: p}, Seen{From: p416.Head, Head: p416.Head})
					}
				}
				cancel()
				if w.pace > 0 {
					select {
					case <-time.After(w.pace):
					case <-ctx.Done():
					}
				}
			}
		}()
	}
	wg.Wait()
}

// final reads every partition whole, through one node.
func (w workload) final(ctx context.Context, node *rest) (map[int][]string, error) {
	all := map[int][]string{}
	for p := range w.partitions {
		texts, _, err := node.readAll(ctx, w.topic, p, 0)
		if err != nil {
			return nil, fmt.Errorf("final read of partition %d: %w", p, err)
		}
		all[p] = texts
	}
	return all, nil
}
