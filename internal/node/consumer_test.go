package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	receive(t, assigned, "the second consumer gets something")
	send(1000)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if err := <-firstEnded; err != nil {
		t.Error(err)
	}
	send(1000)
	receive(t, got.all, "all is handled")
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

// gate is a transport that can be shut: requests then wait until it is opened, which breaks them.
type gate struct {
	base http.RoundTripper
	mu   sync.Mutex
	shut chan struct{} // closed when it is opened; nil = it is open
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.shut)
	g.shut = nil
}

func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut == nil {
		return g.base.RoundTrip(r)
	}
	select {
	case <-shut:
		return nil, io.ErrUnexpectedEOF
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// TestConsumerThatStalls: nothing of a consumer comes through for longer than its session. It knows by itself, another one has its partitions, what it
// would commit under its old generation is refused, and it is back when it can be.
func TestConsumerThatStalls(t *testing.T) {
	config := embedded(t.TempDir())
	config.EmbeddedRedis = true
	n := start(t, config)
	c := connect(t, n, "acme")
	partitions := 2
	if _, _, err := c.PutTopic(t.Context(), "orders", client.TopicSettings{Partitions: &partitions}); err != nil {
		t.Fatal(err)
	}
	publish(t, c, 100)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	g := &gate{base: transport}
	got := newConsumed(100)
	lost, assigned := make(chan []client.TopicPartition, 100), make(chan []client.GroupOffset, 100)
	run := func(c *client.Client, handle func(context.Context, *client.GroupRecord) error, opts ...client.ConsumerOption) (*client.Consumer, chan error) {
		opts = append(opts, client.WithConsumerStart("earliest"), client.WithConsumerSession(time.Second), client.WithConsumerCommit(50*time.Millisecond, 0))
		k, err := client.NewConsumer(c, "billing", []string{"orders"}, opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = k.Close() })
		ended := make(chan error, 1)
		go func() { ended <- k.Run(t.Context(), handle) }()
		return k, ended
	}
	inHandler, causes := make(chan struct{}, 100), make(chan error, 100)
	stuck, stuckEnded := run(connect(t, n, "acme", client.WithHTTPClient(&http.Client{Transport: g})), func(ctx context.Context, _ *client.GroupRecord) error {
		select {
		case <-got.all: // all was handled by the other one
			return nil
		default:
		}
		inHandler <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil
	}, client.WithConsumerOnLost(func(p []client.TopicPartition) { lost <- p }), client.WithConsumerOnAssigned(func(p []client.GroupOffset) { assigned <- p }))
	receive(t, inHandler, "a handler runs")
	receive(t, assigned, "it has partitions")
	old := stuck.Stats().Generation
	g.close()
	receive(t, lost, "the first partition is lost")
	receive(t, lost, "the second partition is lost")
	if err := receive(t, causes, "its handler has ended"); !errors.Is(err, client.ErrPartitionLost) {
		t.Error(err)
	}
	other, otherEnded := run(c, got.handle)
	receive(t, got.all, "the other one has handled all")
	err := c.CommitOffsets(t.Context(), "billing", client.GroupMember{ID: stuck.MemberID(), Generation: old}, []client.GroupOffset{{Topic: "orders", Offset: 1}})
	if !errors.Is(err, client.ErrStaleGeneration) {
		t.Errorf("a commit of generation %d: %v", old, err)
	}
	g.open()
	receive(t, assigned, "it is back")
	for _, k := range []*client.Consumer{stuck, other} {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, ended := range []chan error{stuckEnded, otherEnded} {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	offsets, err := c.CommittedOffsets(t.Context(), "billing")
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, o := range offsets {
		sum += o.Offset
	}
	if sum != 100 || len(got.wrong) > 0 {
		t.Errorf("committed %+v, %v", offsets, got.wrong)
	}
}

func receive[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	select {
	case v := <-ch:
		return v
	case <-timer.C:
		t.Fatalf("%s: not within 20 s", what)
		panic("unreachable")
	}
}
