package node

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/client"
)

// consumed is what the consumers of a group have handled, by value.
type consumed struct {
	mu    sync.Mutex
	times map[string]int
	last  map[string]int64 // by key: the highest offset
	wrong []string
	want  int
	all   chan struct{}
}

func newConsumed(want int) *consumed {
	return &consumed{times: map[string]int{}, last: map[string]int64{}, want: want, all: make(chan struct{})}
}

func (c *consumed) handle(_ context.Context, r *client.GroupRecord) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, key := string(r.Value), string(r.Key)
	c.times[value]++
	if last, ok := c.last[key]; ok && r.Offset < last && c.times[value] == 1 {
		c.wrong = append(c.wrong, fmt.Sprintf("%s at %d after %d", key, r.Offset, last))
	}
	c.last[key] = max(c.last[key], r.Offset)
	if len(c.times) == c.want {
		select {
		case <-c.all:
		default:
			close(c.all)
		}
	}
	return nil
}

// TestConsumersOfAGroup: two consumers share a topic; one comes later, one ends earlier, the topic gets a partition; everything is handled, in order
// per key, and nothing twice, because nobody dies. In the end all is committed.
func TestConsumersOfAGroup(t *testing.T) {
	config := embedded(t.TempDir())
	config.EmbeddedRedis = true
	n := start(t, config)
	c := connect(t, n, "acme")
	partitions := 4
	if _, _, err := c.PutTopic(t.Context(), "orders", client.TopicSettings{Partitions: &partitions}); err != nil {
		t.Fatal(err)
	}
	const total = 3000
	sent := 0
	send := func(n int) {
		t.Helper()
		var records []client.Record
		for range n {
			records = append(records, client.Record{Key: fmt.Append(nil, "k", sent%50), Value: strconv.AppendInt(nil, int64(sent), 10), Kind: client.KindText})
			sent++
		}
		if _, err := c.Publish(t.Context(), "orders", records, nil); err != nil {
			t.Fatal(err)
		}
	}
	send(1000)
	got := newConsumed(total)
	run := func(opts ...client.ConsumerOption) (*client.Consumer, chan error) {
		opts = append(opts, client.WithConsumerStart("earliest"), client.WithConsumerSession(1500*time.Millisecond),
			client.WithConsumerCommit(100*time.Millisecond, 0))
		k, err := client.NewConsumer(c, "billing", []string{"orders"}, opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = k.Close() })
		ended := make(chan error, 1)
		go func() { ended <- k.Run(t.Context(), got.handle) }()
		return k, ended
	}
	assigned := make(chan []client.GroupOffset, 100)
	first, firstEnded := run()
	second, secondEnded := run(client.WithConsumerOnAssigned(func(p []client.GroupOffset) { assigned <- p }))
	wait := func(what string, ch <-chan []client.GroupOffset) {
		t.Helper()
		select {
		case <-ch:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: not within 20 s; %+v %+v", what, first.Stats(), second.Stats())
		}
	}
	wait("the second consumer gets something", assigned)
	send(1000)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if err := <-firstEnded; err != nil {
		t.Error(err)
	}
	send(1000)
	select {
	case <-got.all:
	case <-time.After(20 * time.Second):
		t.Fatalf("not all within 20 s: %+v", second.Stats())
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if err := <-secondEnded; err != nil {
		t.Error(err)
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	for v, times := range got.times {
		if times != 1 {
			t.Errorf("record %s was handled %d times", v, times)
		}
	}
	if len(got.wrong) > 0 {
		t.Error(got.wrong)
	}
	offsets, err := c.CommittedOffsets(t.Context(), "billing")
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, o := range offsets {
		sum += o.Offset
	}
	if sum != total {
		t.Errorf("committed %+v, together %d of %d", offsets, sum, total)
	}
	g, err := c.GetGroup(t.Context(), "billing")
	if err != nil || len(g.Members) != 0 {
		t.Errorf("%+v, %v", g, err)
	}
}
