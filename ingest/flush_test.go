package ingest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
)

// slowStore makes every upload take d.
func slowStore(f *fixture, d time.Duration) {
	f.store.put = func(ctx context.Context, _ int, _ string) error {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		return ctx.Err()
	}
}

// One client that waits for each answer sees the latency of store and commit, not the linger.
func TestLoneClientDoesNotWaitForTheLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		slowStore(f, 2*time.Millisecond)
		begin := time.Now()
		for range 50 {
			if _, err := f.Append(t.Context(), publish(topic(1, 1), []string{"v"}, 0)); err != nil {
				t.Fatal(err)
			}
		}
		// 50 uploads of 2 ms, and the probes by which the node learns that nobody else comes, half of the linger each at most.
		if took := time.Since(begin); took > 100*time.Millisecond+probesToTrust*25*time.Millisecond {
			t.Errorf("50 appends took %v", took)
		}
		idle, quiet := f.metric(t, "forebay_ingest_seals_total", "idle"), f.metric(t, "forebay_ingest_seals_total", "quiet")
		if idle+quiet != 50 || quiet > probesToTrust {
			t.Errorf("%v idle seals, %v quiet ones", idle, quiet)
		}
	})
}

// A hundred clients that wait for each answer share segments, and still do not wait for the linger.
func TestConcurrentClientsShareSegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(o *Options) { o.Linger = time.Second })
		slowStore(f, 5*time.Millisecond)
		begin := time.Now()
		const clients, rounds = 100, 20
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				for range rounds {
					if _, err := f.Append(t.Context(), publish(topic(1, 1), []string{"v"}, 0)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if n := f.store.count(); n > 3*rounds {
			t.Errorf("%d PUTs for %d rounds of %d clients", n, rounds, clients)
		}
		// Some of the first rounds wait until the node knows how many clients there are.
		if took := time.Since(begin); took > 1500*time.Millisecond {
			t.Errorf("took %v for %d rounds of 5 ms", took, rounds)
		}
	})
}

// A steady stream of 20 MiB/s with a linger of 400 ms stays under 160 PUTs a GiB, although requests come one by one and commits are fast.
func TestSteadyStreamCostsFewPuts(t *testing.T) {
	for _, upload := range []time.Duration{2 * time.Millisecond, 80 * time.Millisecond} {
		t.Run(upload.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// A thousandth of the real size: 20 KiB/s, segments of 8 KiB.
				f := start(t, func(o *Options) { o.Linger = 400 * time.Millisecond; o.SegmentBytes = 8 << 10 })
				slowStore(f, upload)
				const perSecond, seconds = 200, 120
				value := string(make([]byte, 20<<10/perSecond-3))
				var wg sync.WaitGroup
				warm := 0
				for i := range perSecond * seconds {
					wg.Go(func() {
						if _, err := f.Append(t.Context(), publish(topic(1, 1), []string{value}, 0)); err != nil {
							t.Error(err)
						}
					})
					time.Sleep(time.Second / perSecond)
					if i == perSecond*20 { // the node has learned how many requests are open at a time
						warm = f.store.count()
					}
				}
				wg.Wait()
				mib := float64(20<<10*(seconds-20)) / (1 << 10) // of the real size
				if perGiB := float64(f.store.count()-warm) / mib * 1024; perGiB > 160 {
					t.Errorf("%.0f PUTs a GiB", perGiB)
				}
				if perGiB := float64(f.store.count()) / (20 * seconds) * 1024; perGiB > 200 {
					t.Errorf("%.0f PUTs a GiB with the ramp", perGiB)
				}
			})
		})
	}
}

// Clients that stop coming are not waited for until the linger.
func TestLeftClientsAreNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(o *Options) { o.Linger = 80 * time.Millisecond })
		slowStore(f, time.Millisecond)
		var wg sync.WaitGroup
		for c := range 8 {
			wg.Go(func() {
				for range 30 {
					if c == 0 {
						return
					}
					if _, err := f.Append(t.Context(), publish(topic(1, 1), []string{"v"}, 0)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		begin := time.Now()
		if _, err := f.Append(t.Context(), publish(topic(1, 1), []string{"v"}, 0)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 20*time.Millisecond {
			t.Errorf("the last client waited %v", took)
		}
		if n := f.metric(t, "forebay_ingest_seals_total", "quiet"); n == 0 {
			t.Error("no quiet seal")
		}
	})
}

func TestSegmentIsSealedWhenTheNextRequestDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(o *Options) { o.SegmentBytes = 1000 })
		gate := make(chan struct{})
		f.store.put = func(_ context.Context, n int, _ string) error {
			if n == 1 {
				<-gate
			}
			return nil
		}
		tp := topic(1, 1)
		send := func(n int) <-chan outcome {
			ch := f.async(t.Context(), publish(tp, []string{string(make([]byte, n-3))}, 0)) // 2 + 1 bytes of encoding
			synctest.Wait()
			return ch
		}
		chans := []<-chan outcome{send(100)} // in flight
		for _, n := range []int{400, 500, 200, 3000, 1000, 10} {
			chans = append(chans, send(n))
		}
		close(gate)
		for _, ch := range chans {
			if o := <-ch; o.err != nil {
				t.Error(o.err)
			}
		}
		var records []int32
		for _, c := range f.log.commits() {
			records = append(records, c.Batches[0].Records)
		}
		if got, want := fmt.Sprint(records), "[1 2 1 1 1 1]"; got != want { // 100 | 400 500 | 200 | 3000 | 1000 | 10
			t.Errorf("records per segment %v, want %v", got, want)
		}
		if n := f.metric(t, "forebay_ingest_seals_total", "size"); n != 4 {
			t.Errorf("%v seals by size", n)
		}
	})
}

func TestSegmentIsSealedBeforeTheCommitGetsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(o *Options) { o.SegmentBatches = 10; o.CommitBytes = 4000 })
		gate := make(chan struct{})
		f.store.put = func(_ context.Context, n int, _ string) error {
			if n == 1 {
				<-gate
			}
			return nil
		}
		dedupe := topic(2, 1)
		dedupe.Config.DedupeWindow = time.Hour
		chans := []<-chan outcome{f.async(t.Context(), publish(topic(1, 1), []string{"v"}, 0))}
		synctest.Wait()
		for i := range 25 { // a batch each: 10, 10, 5
			chans = append(chans, f.async(t.Context(), publish(topic(1, 100), []string{"v"}, int32(i))))
		}
		synctest.Wait()
		for range 3 { // 100 IDs each: two fit in a commit
			q := publish(dedupe, nil)
			for i := range 100 {
				r := record("v")
				r.ID = fmt.Sprint(i)
				q.Topics[0].Records = append(q.Topics[0].Records, r)
				q.Topics[0].Partitions = append(q.Topics[0].Partitions, 0)
			}
			chans = append(chans, f.async(t.Context(), q))
			synctest.Wait()
		}
		close(gate)
		for _, ch := range chans {
			if o := <-ch; o.err != nil {
				t.Error(o.err)
			}
		}
		for _, c := range f.log.commits() {
			hashes := 0
			for _, b := range c.Batches {
				hashes += len(b.IDHashes)
			}
			if len(c.Batches) > 10 || hashes > 250 {
				t.Errorf("a commit of %d batches and %d hashes", len(c.Batches), hashes)
			}
		}
		if n := f.metric(t, "forebay_ingest_seals_total", "batches"); n != 2 {
			t.Errorf("%v seals by batches", n)
		}
	})
}

// While no upload slot is free, the open segment grows instead of queueing up in small pieces.
func TestNoSmallSegmentsWhileTheStoreIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(o *Options) { o.UploadConcurrency = 2 })
		slowStore(f, 10*time.Second)
		var chans []<-chan outcome
		for range 100 {
			chans = append(chans, f.async(t.Context(), publish(topic(1, 1), []string{"v"}, 0)))
			time.Sleep(10 * time.Millisecond)
		}
		for _, ch := range chans {
			if o := <-ch; o.err != nil {
				t.Error(o.err)
			}
		}
		if n := f.store.count(); n != 3 {
			t.Errorf("%d segments, want two in the slots and one with the rest", n)
		}
	})
}

func TestRefusalsAreImmediateAndMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		f := start(t, func(o *Options) { o.MaxInFlightBytes = 10_000; o.MaxTenantBytes = 6_000 })
		f.store.put = func(context.Context, int, string) error { <-gate; return nil }
		mine, theirs := topic(1, 1), topic(2, 1)
		theirs.Tenant = "u"
		kilo := string(make([]byte, 1000))
		var accepted []<-chan outcome
		refused := map[api.Code]int{}
		for i := range 40 {
			tp := mine
			if i >= 20 {
				tp = theirs
			}
			ch := f.async(t.Context(), publish(tp, []string{kilo}, 0))
			synctest.Wait() // no time passes: a refusal is there now or never
			select {
			case o := <-ch:
				e := wantCode(t, o.err, api.CodeOf(o.err))
				if e.RetryAfter <= 0 {
					t.Errorf("%v without Retry-After", e)
				}
				refused[e.Code]++
			default:
				accepted = append(accepted, ch)
			}
		}
		if used := f.metric(t, "forebay_ingest_in_flight_bytes", ""); used > 10_000 || used < 7_000 {
			t.Errorf("%v bytes in flight", used)
		}
		// 2,043 bytes each: two for the first tenant, two for the second; then the node has room for no more, the tenants for none.
		if len(accepted) != 4 || refused[api.CodeQuotaExceeded] != 36 {
			t.Errorf("%d accepted, %v refused", len(accepted), refused)
		}
		third := topic(3, 1)
		third.Tenant = "w"
		_, err := f.Append(t.Context(), publish(third, []string{kilo + kilo}, 0))
		wantCode(t, err, api.CodeOverloaded)
		close(gate)
		for _, ch := range accepted {
			if o := <-ch; o.err != nil {
				t.Error(o.err)
			}
		}
		if _, err := f.Append(t.Context(), publish(mine, []string{kilo}, 0)); err != nil {
			t.Errorf("after the jam: %v", err)
		}
	})
}

func TestWithoutAQuorumNothingIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		f.log.setDown(api.Errorf(api.CodeMetadataUnavailable, "no leader"))
		_, err := f.Append(t.Context(), publish(topic(1, 1), []string{"v"}, 0))
		wantCode(t, err, api.CodeMetadataUnavailable)
		if f.store.count() != 0 {
			t.Error("something was uploaded")
		}
		f.log.setDown(nil)
		if _, err := f.Append(t.Context(), publish(topic(1, 1), []string{"v"}, 0)); err != nil {
			t.Error(err)
		}
	})
}

// Commits are submitted in seal order although uploads end in the opposite one.
func TestCommitsFollowSealOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(o *Options) { o.SegmentBytes = 10; o.UploadConcurrency = 8 })
		f.store.put = func(_ context.Context, n int, _ string) error {
			time.Sleep(time.Duration(20-n) * time.Second)
			return nil
		}
		var order []string
		f.log.hold = func(c *metadata.Commit, answer func(error)) {
			order = append(order, c.Segment.ID.String())
			answer(nil)
		}
		var chans []<-chan outcome
		for i := range 8 {
			chans = append(chans, f.async(t.Context(), publish(topic(1, 1), []string{fmt.Sprintf("value %d, long enough", i)}, 0)))
			synctest.Wait()
		}
		for i, ch := range chans {
			if o := <-ch; o.err != nil || o.res.Topics[0].Offsets[0] != int64(i) {
				t.Errorf("request %d: %+v", i, o)
			}
		}
		for i := 1; i < len(order); i++ {
			if order[i-1] >= order[i] {
				t.Errorf("commit order %v", order)
			}
		}
	})
}
