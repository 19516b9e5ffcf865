package leases

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/internal/redistest"
)

// TestRealRedisRedrivesTenThousand lets 10,000 records die, redrives them at a rate until the task is cancelled on another node, then the rest as
// fast as it goes while Redis loses everything, and works all of them off: each is delivered as often as it was redriven.
func TestRealRedisRedrivesTenThousand(t *testing.T) {
	server := redistest.Start(t)
	nodes := realNodes(t, server, 2)
	for _, n := range nodes {
		n.f = &fabric{t: t}
	}
	a, b := nodes[0], nodes[1]
	const records, rate = 10_000, 5000
	a.topic("orders", 2, nil)
	name := sub("orders", "w")
	a.manyDead(name, records)
	begun := time.Now()
	task := a.redrive(name, DeadLetterSelection{All: true}, rate)
	after(t, time.Second)
	cancelled := b.cancelTask(name, task.ID)
	took := time.Since(begun)
	if most := int64(rate*took.Seconds()) + rate/5; cancelled.State != taskCancelled || cancelled.Done == 0 || cancelled.Done > min(most, records-1) {
		t.Fatalf("cancelled after %v: %+v", took, cancelled)
	}
	after(t, time.Second)
	left := int64(len(a.deadLetters(name, false)))
	if left != records-cancelled.Done {
		t.Fatalf("%d are dead, %d were redriven", left, cancelled.Done)
	}
	seen := map[string]int{}
	work := func(n *fabricNode) {
		for ms := n.lease(name, 1000); len(ms) > 0; ms = n.lease(name, 1000) {
			for i := range ms {
				seen[fmt.Sprint(ms[i].Partition, "/", ms[i].Record.Offset)]++
			}
			n.settle(name, Ack, "", ms)
		}
	}
	work(b)
	if int64(len(seen)) != cancelled.Done {
		t.Fatalf("%d were delivered, %d redriven", len(seen), cancelled.Done)
	}
	after(t, 300*time.Millisecond) // what was settled in the last 100 ms may come again when Redis is lost
	rest := b.redrive(name, DeadLetterSelection{All: true}, api.MaxRedriveRate)
	server.Flush()
	if end := b.awaitTask(name, rest.ID, taskDone); end.Done != left || end.Total != left {
		t.Fatalf("the rest of %d: %+v", left, end)
	}
	work(a)
	if len(seen) != records {
		t.Fatalf("%d were delivered in all", len(seen))
	}
	for at, times := range seen {
		if times != 1 {
			t.Fatalf("%s was delivered %d times", at, times)
		}
	}
	if got := a.deadLetters(name, false); len(got) != 0 {
		t.Fatalf("%d are dead still", len(got))
	}
}
