package proof

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/internal/failpoint"
)

// TestCrashInCompaction kills the process with SIGKILL at each step of a merge and of a collection, over one data folder, while records are
// published. After each restart and in the end every acknowledged record stands where its acknowledgement said, and nothing that the index
// refers to is missing.
func TestCrashInCompaction(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	dir := t.TempDir()
	addrs := ports(t, 2)
	boot := func(failpoints string) *process {
		p := start(t, "dev", addrs[1], []string{
			"FOREBAY_FAILPOINTS=" + failpoints, "FOREBAY_COMPACT_AFTER=100ms", "FOREBAY_GC_GRACE=3s", "FOREBAY_READ_GRACE=500ms", "FOREBAY_COLLECT_EVERY=200ms",
		}, "dev", "--data", filepath.Join(dir, "data"), "--listen", addrs[0], "--ops-listen", addrs[1], "--token-file", filepath.Join(dir, "token"))
		if err := p.ready(ctx); err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := boot("")
	tok := token(t, filepath.Join(dir, "token"))
	if err := newRest("http://"+addrs[0], tok).createTopic(ctx, "merged", 2); err != nil {
		t.Fatal(err)
	}
	first.kill()

	var mu sync.Mutex
	acked := [2]map[int64]string{{}, {}}
	for run, point := range []string{
		failpoint.CompactorBeforePut, failpoint.CompactorAfterPut, failpoint.CompactorBeforeReplace, failpoint.CompactorAfterReplace,
		failpoint.CollectorAfterBoundary, failpoint.CollectorBeforeDelete, failpoint.CollectorAfterDelete,
	} {
		p := boot(fmt.Sprintf("%s=kill@%d", point, 1+run%2))
		node := newRest("http://"+addrs[0], tok)
		var wg sync.WaitGroup
		for part := range 2 {
			wg.Go(func() {
				for i := 0; ; i++ {
					texts := []string{fmt.Sprintf("%s-%d-%d", point, part, i)}
					pos, _, err := node.publish(ctx, "merged", part, texts, nil)
					if err == nil {
						mu.Lock()
						acked[part][pos[0].Offset] = texts[0]
						mu.Unlock()
						continue
					}
					select {
					case <-p.exited:
						return
					case <-ctx.Done():
						return
					default: // a slow moment: go on
					}
				}
			})
		}
		select {
		case <-p.exited:
		case <-ctx.Done():
			t.Fatalf("%s was not reached\n%s", point, p.log.tail())
		}
		wg.Wait()
		node.http.CloseIdleConnections()
	}

	last := boot("")
	node := newRest("http://"+addrs[0], tok)
	total := 0
	for part := range 2 {
		texts, head, err := node.readAll(ctx, "merged", part, 0)
		if err != nil {
			t.Fatalf("read partition %d: %v\n%s", part, err, last.log.tail())
		}
		if int64(len(texts)) != head {
			t.Errorf("partition %d: %d records up to head %d", part, len(texts), head)
		}
		for offset, text := range acked[part] {
			if offset >= head || texts[offset] != text {
				t.Errorf("acknowledged record %s is not at %d/%d", text, part, offset)
			}
		}
		total += len(acked[part])
	}
	if total == 0 {
		t.Error("nothing was acknowledged: the test proves nothing")
	}
	// Two passes of the collector over the bucket, and a merge, by a process that lives.
	for metric(t, ctx, addrs[1], "forebay_compactor_passes_total") < 2 || metric(t, ctx, addrs[1], "forebay_compactor_written_bytes_total") == 0 {
		if _, _, err := node.publish(ctx, "merged", 0, []string{"more"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := metric(t, ctx, addrs[1], "forebay_compactor_missing_objects"); n != 0 {
		t.Errorf("%v objects are missing", n)
	}
	t.Logf("%d records acknowledged", total)
}

// metric sums the series of a metric.
func metric(t *testing.T, ctx context.Context, ops, name string) (sum float64) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ops+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	for s := bufio.NewScanner(res.Body); s.Scan(); {
		series, value, _ := strings.Cut(s.Text(), " ")
		if base, _, _ := strings.Cut(series, "{"); base != name {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(value, &v); err != nil {
			t.Fatalf("metric %s: %v", s.Text(), err)
		}
		sum += v
	}
	return sum
}
