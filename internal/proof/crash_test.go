package proof

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/internal/failpoint"
	"github.com/forebaymq/forebay/internal/s3test"
)

// TestCrash kills one process with SIGKILL at each named point between buffer and acknowledgement, again and again over one data folder, and
// after each restart reads everything back: every acknowledged record stands where its acknowledgement said, nothing stands twice, nothing
// stands there that was not sent, and a producer with a sequence that resends what it was not answered has each record once.
//
// FOREBAY_CRASH_RUNS sets the number of runs (default 10), FOREBAY_CRASH_SEED the seed.
func TestCrash(t *testing.T) {
	runs := envInt(t, "FOREBAY_CRASH_RUNS", 10)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(60+runs*20)*time.Second)
	defer cancel()
	crashOn(ctx, t, onFiles(ctx, t), runs)
}

// TestCrashOnServer is TestCrash over a real S3 server, by both drivers, once a point.
func TestCrashOnServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	t.Run("s3", func(t *testing.T) { crashOn(ctx, t, onServer(ctx, t, (*s3test.Server).S3URL), 5) })
	t.Run("minio", func(t *testing.T) { crashOn(ctx, t, onServer(ctx, t, (*s3test.Server).MinioURL), 5) })
}

func crashOn(ctx context.Context, t *testing.T, s *single, runs int) {
	seed := envInt(t, "FOREBAY_CRASH_SEED", 1)
	points := []string{failpoint.AfterBuffer, failpoint.BeforePut, failpoint.AfterPut, failpoint.AfterCommit, failpoint.BeforeAck}
	const partitions, clients = 2, 3

	first := s.boot("")
	node := s.client(t)
	if err := node.createTopic(ctx, "crash", partitions); err != nil {
		t.Fatal(err)
	}
	first.kill()

	acked := make([]map[int64]string, partitions) // offset -> text
	for p := range acked {
		acked[p] = map[int64]string{}
	}
	sent := map[string]bool{}        // everything ever sent
	exactlyOnce := map[string]bool{} // what the sequenced producer was acknowledged
	perPoint := map[string]int{}
	var mu sync.Mutex
	ack := func(pos position, text string) {
		mu.Lock()
		defer mu.Unlock()
		if was, ok := acked[pos.Partition][pos.Offset]; ok && was != text {
			t.Errorf("offset %d/%d was given to %s and to %s", pos.Partition, pos.Offset, was, text)
		}
		acked[pos.Partition][pos.Offset] = text
	}

	sequence := int64(0)
	var unanswered []string // texts of the sequenced request in flight at the crash
	for run := range runs {
		rng := rand.New(rand.NewPCG(uint64(seed), uint64(run)))
		point := points[run%len(points)]
		perPoint[point]++
		p := s.boot(fmt.Sprintf("%s=kill@%d", point, 1+rng.IntN(12)))
		node := s.client(t)

		var wg sync.WaitGroup
		for c := range clients {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := 0; ; i++ {
					texts := []string{fmt.Sprintf("r%d-c%d-%d-a", run, c, i), fmt.Sprintf("r%d-c%d-%d-b", run, c, i)}
					mu.Lock()
					sent[texts[0]], sent[texts[1]] = true, true
					mu.Unlock()
					pos, _, err := node.publish(ctx, "crash", (c+i)%partitions, texts, nil)
					if err != nil {
						return // the process is gone: any other error shows as a run that does not end
					}
					ack(pos[0], texts[0])
					ack(pos[1], texts[1])
				}
			}()
		}
		wg.Add(1)
		go func() { // the sequenced producer: first what it was not answered before, under the same sequence
			defer wg.Done()
			for i := 0; ; i++ {
				if unanswered == nil {
					sequence++
					unanswered = []string{fmt.Sprintf("r%d-seq%d", run, sequence)}
				}
				mu.Lock()
				sent[unanswered[0]] = true
				mu.Unlock()
				pos, _, err := node.publish(ctx, "crash", 0, unanswered, &producer{ID: "crash-producer", Sequence: sequence})
				if err != nil {
					return
				}
				ack(pos[0], unanswered[0])
				mu.Lock()
				exactlyOnce[unanswered[0]] = true
				mu.Unlock()
				unanswered = nil
			}
		}()
		select {
		case <-p.exited:
		case <-ctx.Done():
			t.Fatalf("run %d: %s was not reached\n%s", run, point, p.log.tail())
		}
		wg.Wait()
		node.http.CloseIdleConnections()
	}

	s.boot("")
	node = s.client(t)
	if unanswered != nil {
		pos, _, err := node.publish(ctx, "crash", 0, unanswered, &producer{ID: "crash-producer", Sequence: sequence})
		if err != nil {
			t.Fatal(err)
		}
		ack(pos[0], unanswered[0])
		exactlyOnce[unanswered[0]] = true
	}
	stands := map[string]int{}
	total := 0
	for p := range partitions {
		texts, head, err := node.readAll(ctx, "crash", p, 0)
		if err != nil {
			t.Fatal(err)
		}
		total += len(texts)
		for off, text := range acked[p] {
			if off >= head || texts[off] != text {
				t.Errorf("acknowledged record %s is not at %d/%d", text, p, off)
			}
		}
		for off, text := range texts {
			if !sent[text] {
				t.Errorf("%d/%d holds %q, which nobody sent", p, off, text)
			}
			if stands[text]++; stands[text] > 1 {
				t.Errorf("%s stands %d times", text, stands[text])
			}
		}
	}
	for text := range exactlyOnce {
		if stands[text] != 1 {
			t.Errorf("sequenced record %s stands %d times", text, stands[text])
		}
	}
	if len(acked[0])+len(acked[1]) == 0 {
		t.Error("nothing was ever acknowledged: the test proves nothing")
	}
	t.Logf("%d runs (%v), %d records acknowledged, %d stand, %d sequenced", runs, perPoint, len(acked[0])+len(acked[1]), total, len(exactlyOnce))
}

func envInt(t *testing.T, name string, def int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a number above 0", name, s)
	}
	return n
}
