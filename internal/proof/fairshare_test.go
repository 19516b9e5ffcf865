package proof

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestFairShare publishes ten times as much for a noisy customer as for a quiet one, more than the workers can do, and compares how long
// the quiet one's records wait, with fair share by a header and without.
func TestFairShare(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	addrs := ports(t, 2)
	startDev(ctx, t, dir, addrs, "")
	node := newRest("http://"+addrs[0], token(t, filepath.Join(dir, "token")))
	wait := map[bool]time.Duration{}
	for _, fair := range []bool{false, true} {
		topic := fmt.Sprintf("fair-%v", fair)
		if err := node.createTopic(ctx, topic, 4); err != nil {
			t.Fatal(err)
		}
		config := map[string]any{"start": "earliest", "maxAckedAhead": 100_000, "maxInFlight": 1000}
		if fair {
			config["fairShare"] = map[string]any{"by": "header", "header": "customer"}
		}
		path := "/v1/topics/" + topic + "/subscriptions/work"
		if err := node.call(ctx, "PUT", path, config, nil); err != nil {
			t.Fatal(err)
		}
		waits := quietWaits(ctx, t, node, topic, path)
		if len(waits) < 100 {
			t.Fatalf("%d records of the quiet customer were worked off", len(waits))
		}
		slices.Sort(waits)
		wait[fair] = waits[len(waits)*95/100]
		t.Logf("fair share %v: the quiet customer's records wait p50 %v, p95 %v", fair, waits[len(waits)/2].Round(time.Millisecond), wait[fair].Round(time.Millisecond))
	}
	if wait[true]*2 > wait[false] {
		t.Errorf("p95 of the quiet customer's waiting is %v with fair share and %v without", wait[true], wait[false])
	}
}

// quietWaits runs the load for four seconds and gives the waits of the quiet customer's records.
func quietWaits(ctx context.Context, t *testing.T, node *rest, topic, path string) (waits []time.Duration) {
	t.Helper()
	load, stop := context.WithTimeout(ctx, 4*time.Second)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; pause(load, nil, 20*time.Millisecond); n++ {
			var records []map[string]any
			for i := range 22 {
				who := "noisy"
				if i%11 == 10 {
					who = "quiet"
				}
				records = append(records, map[string]any{"key": fmt.Sprint(n, "-", i), "text": time.Now().Format(time.RFC3339Nano), "headers": map[string]any{"customer": who}})
			}
			if err := node.call(ctx, "POST", "/v1/topics/"+topic+"/records", map[string]any{"records": records}, nil); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var mu sync.Mutex
	for range 8 { // each does about 50 records a second
		wg.Go(func() {
			for load.Err() == nil {
				var out struct {
					Messages []struct {
						Receipt string      `json:"receipt"`
						Text    string      `json:"text"`
						Headers [][2]string `json:"headers"`
					} `json:"messages"`
				}
				if err := node.call(ctx, "POST", path+"/lease", map[string]any{"max": 5, "wait": "1s"}, &out); err != nil {
					t.Error(err)
					return
				}
				now := time.Now()
				var receipts []string
				for _, m := range out.Messages {
					receipts = append(receipts, m.Receipt)
					if m.Headers[0][1] == "quiet" {
						published, err := time.Parse(time.RFC3339Nano, m.Text)
						if err != nil {
							t.Error(err)
						}
						mu.Lock()
						waits = append(waits, now.Sub(published))
						mu.Unlock()
					}
				}
				pause(ctx, nil, 100*time.Millisecond)
				if len(receipts) > 0 {
					if err := node.call(ctx, "POST", path+"/ack", map[string]any{"receipts": receipts}, nil); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	return waits
}
