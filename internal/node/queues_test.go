package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/internal/redistest"
)

// queue makes a topic of one partition with n records and a subscription that has them all.
func queue(t *testing.T, c *client.Client, n int, attempts int) {
	t.Helper()
	one, start := 1, "earliest"
	if _, _, err := c.PutTopic(t.Context(), "orders", client.TopicSettings{Partitions: &one}); err != nil {
		t.Fatal(err)
	}
	publish(t, c, n)
	if _, created, err := c.PutSubscription(t.Context(), "orders", "work", client.SubscriptionSettings{Start: &start, MaxAttempts: &attempts}); err != nil || !created {
		t.Fatal(created, err)
	}
}

func publish(t *testing.T, c *client.Client, n int) {
	t.Helper()
	var records []client.Record
	for i := range n {
		records = append(records, client.Record{Key: fmt.Append(nil, "k", i), Value: fmt.Append(nil, i), Kind: client.KindText})
	}
	if _, err := c.Publish(t.Context(), "orders", records, nil); err != nil {
		t.Fatal(err)
	}
}

// lease leases so many, which must be there within a while.
func lease(t *testing.T, c *client.Client, want int) (got []client.Message) {
	t.Helper()
	for len(got) < want {
		m, err := c.Lease(t.Context(), "orders", "work", client.LeaseOptions{Max: want - len(got), Wait: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if len(m) == 0 {
			t.Fatalf("%d leased, want %d", len(got), want)
		}
		got = append(got, m...)
	}
	return got
}

func subscription(t *testing.T, c *client.Client) client.SubscriptionPartition {
	t.Helper()
	s, err := c.GetSubscription(t.Context(), "orders", "work")
	if err != nil || len(s.Partitions) != 1 {
		t.Fatal(s, err)
	}
	return s.Partitions[0]
}

// gauge reads a gauge of the node.
func gauge(t *testing.T, n *Node, name string) float64 {
	t.Helper()
	families, err := n.c.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// readiness gives status and body of /readyz.
func readiness(t *testing.T, n *Node) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.OpsAddr()+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// TestQueuesAreThereAfterARestart: with Redis inside the process, everything about a queue but its leases survives the process.
func TestQueuesAreThereAfterARestart(t *testing.T) {
	dir := t.TempDir()
	config := func() Config {
		c := embedded(dir)
		c.EmbeddedRedis = true
		return c
	}
	n := start(t, config())
	c := connect(t, n, "acme")
	queue(t, c, 10, 2)
	m := lease(t, c, 10)
	now := time.Duration(0)
	receipts := func(from, to int) (r []string) {
		for _, x := range m[from:to] {
			r = append(r, x.Receipt)
		}
		return r
	}
	settled := func(results []client.SettleResult, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Code != "" {
				t.Fatalf("%+v", r)
			}
		}
	}
	settled(c.AckMany(t.Context(), "orders", "work", append(receipts(0, 3), receipts(5, 6)...)))
	settled(c.NackMany(t.Context(), "orders", "work", receipts(3, 5), client.NackOptions{Delay: &now, Reason: "first"}))
	again := lease(t, c, 2)
	for _, x := range again {
		if x.Attempt != 2 || x.Offset != 3 && x.Offset != 4 {
			t.Errorf("leased again: offset %d, attempt %d", x.Offset, x.Attempt)
		}
	}
	for _, x := range again {
		if x.Offset == 3 {
			if err := c.Nack(t.Context(), "orders", "work", x.Receipt, client.NackOptions{Reason: "poison"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// 0, 1, 2 and 5 are settled, 3 is dead, 4 has failed once and is leased as 6 to 9 are.
	begin := time.Now()
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 4*time.Second { // what listens to Redis wakes up every 5 s by itself
		t.Errorf("the stop of an idle node took %s", took)
	}

	n = start(t, config())
	c = connect(t, n, "acme")
	if p := subscription(t, c); p.Frontier != 4 || p.AckedAhead != 1 || p.DeadLetters != 1 || p.InFlight != 0 || p.Lag != 5 {
		t.Errorf("after a restart: %+v", p)
	}
	page, err := c.ListDeadLetters(t.Context(), "orders", "work", client.DeadLetterOptions{Records: true})
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	if d := page.Items[0]; d.Offset != 3 || d.Attempts != 2 || d.Reason != "poison" || d.Record == nil || string(d.Record.Key) != "k3" {
		t.Errorf("dead letter %+v", d)
	}
	if err := c.Ack(t.Context(), "orders", "work", m[7].Receipt); !errors.Is(err, client.ErrLeaseLost) {
		t.Errorf("a receipt of before: %v", err)
	}
	attempts := map[int64]int32{}
	m = lease(t, c, 5)
	for _, x := range m {
		attempts[x.Offset] = x.Attempt
	}
	if got := fmt.Sprint(attempts); got != "map[4:2 6:1 7:1 8:1 9:1]" {
		t.Errorf("attempts by offset: %s", got)
	}
	settled(c.AckMany(t.Context(), "orders", "work", receipts(0, 5)))
	if p := subscription(t, c); p.Frontier != 10 || p.Lag != 0 {
		t.Errorf("at the end: %+v", p)
	}
}

// TestRedisComesAndGoes: a node starts without Redis and serves all but leases, serves those when Redis comes, and again when it has been
// away, with nothing lost.
func TestRedisComesAndGoes(t *testing.T) {
	redis := redistest.Start(t, redistest.Password("hush"))
	redis.Kill()
	cfg := embedded(t.TempDir())
	cfg.Redis = redis.URL()
	n := start(t, cfg)
	c := connect(t, n, "acme")
	once := connect(t, n, "acme", client.WithRetry(client.RetryPolicy{Attempts: 1}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// until asks again as long as f is not content: what is waited for is seen by no signal from outside the process.
	until := func(what string, f func() bool) {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for !f() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("%s: not within a minute", what)
			}
		}
	}
	away := func(step string) {
		t.Helper()
		until(step, func() bool {
			status, body := readiness(t, n)
			if status != http.StatusOK {
				t.Fatalf("%s: %d %s", step, status, body)
			}
			return strings.Contains(body, `"degraded":{"leases":`) && !strings.Contains(body, "hush")
		})
		if _, err := once.Lease(t.Context(), "orders", "work", client.LeaseOptions{}); !errors.Is(err, client.ErrLeasesUnavailable) {
			t.Errorf("%s: lease: %v", step, err)
		}
		publish(t, c, 2)
	}
	back := func(step string) {
		t.Helper()
		until(step, func() bool {
			_, body := readiness(t, n)
			return !strings.Contains(body, "degraded")
		})
	}
	queue(t, c, 1, 5)
	away("started without Redis")
	redis.Restart()
	back("Redis has come")
	m := lease(t, c, 3)
	for _, x := range m[:2] {
		if err := c.Ack(t.Context(), "orders", "work", x.Receipt); err != nil {
			t.Fatal(err)
		}
	}
	until("journalled", func() bool { return gauge(t, n, "forebay_leases_unjournalled_age_seconds") == 0 })
	redis.Kill()
	away("Redis is gone")
	redis.Restart()
	back("Redis is back, empty")
	if err := c.Ack(t.Context(), "orders", "work", m[2].Receipt); !errors.Is(err, client.ErrLeaseLost) {
		t.Errorf("a receipt of before: %v", err)
	}
	m = lease(t, c, 3)
	if m[0].Offset != 2 || m[0].Attempt != 1 {
		t.Errorf("leased first: offset %d, attempt %d", m[0].Offset, m[0].Attempt)
	}
	for _, x := range m {
		if err := c.Ack(t.Context(), "orders", "work", x.Receipt); err != nil {
			t.Fatal(err)
		}
	}
	if p := subscription(t, c); p.Frontier != 5 || p.Lag != 0 {
		t.Errorf("at the end: %+v", p)
	}
}

// TestWithoutRedis: a node that has no Redis has no work queues, and says so.
func TestWithoutRedis(t *testing.T) {
	n := start(t, embedded(t.TempDir()))
	c := connect(t, n, "acme", client.WithRetry(client.RetryPolicy{Attempts: 1}))
	one := 1
	if _, _, err := c.PutTopic(t.Context(), "orders", client.TopicSettings{Partitions: &one}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.PutSubscription(t.Context(), "orders", "work", client.SubscriptionSettings{}); !errors.Is(err, client.ErrLeasesUnavailable) {
		t.Errorf("put subscription: %v", err)
	}
	if status, body := readiness(t, n); status != http.StatusOK || strings.Contains(body, "degraded") {
		t.Errorf("%d %s", status, body)
	}
}
