package outbox_test

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/client/inbox"
	"github.com/forebaymq/forebay/client/outbox"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/internal/node"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore/mem"
)

const crashAccounts = 6

// bank is a business database with an outbox, a tenant of a node, and tables of effects with an inbox.
type bank struct {
	db     *sql.DB
	box    *outbox.Outbox
	client *client.Client
	child  child
}

func newBank(t testing.TB, n *node.Node) *bank {
	t.Helper()
	ctx := limited(t)
	address := postgres.URL(t)
	b := &bank{child: child{Database: address}}
	var err error
	if b.db, err = sql.Open("pgx", address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.db.Close() })
	if b.box, err = outbox.New(); err != nil {
		t.Fatal(err)
	}
	if err := b.box.Migrate(ctx, b.db); err != nil {
		t.Fatal(err)
	}
	in, err := inbox.New()
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Migrate(ctx, b.db); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		"CREATE TABLE account (account int PRIMARY KEY, balance int NOT NULL, version int NOT NULL)",
		"CREATE TABLE effect_queue (account int PRIMARY KEY, balance int NOT NULL, version int NOT NULL, changes int NOT NULL, disorder int NOT NULL)",
		fmt.Sprintf("INSERT INTO account SELECT n, 0, 0 FROM generate_series(0, %d) n", crashAccounts-1),
		"INSERT INTO effect_queue SELECT account, 0, 0, 0, 0 FROM account",
		"CREATE TABLE effect_group AS TABLE effect_queue",
	} {
		if _, err := b.db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	b.child.Server = "http://" + n.Addr()
	claims := auth.Claims{Tenant: "bank-" + strings.ToLower(crand.Text()), Subject: "test", Expires: time.Now().Add(time.Hour)}
	if b.child.Token, err = auth.SignDev(nodeKey(), claims); err != nil {
		t.Fatal(err)
	}
	if b.client, err = client.New(b.child.Server, client.WithToken(b.child.Token)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.client.Close)
	partitions, attempts, start, ordering, visibility := 3, 100, "earliest", "key", "1s"
	if _, _, err := b.client.PutTopic(ctx, crashTopic, client.TopicSettings{Partitions: &partitions}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.client.PutSubscription(ctx, crashTopic, crashSub, client.SubscriptionSettings{
		Start: &start, MaxAttempts: &attempts, Ordering: &ordering, VisibilityTimeout: &visibility}); err != nil {
		t.Fatal(err)
	}
	return b
}

func nodeKey() []byte { return bytes.Repeat([]byte{7}, 32) }

// startNode starts a node on loopback, in this process.
func startNode(t testing.TB) *node.Node {
	t.Helper()
	driver := metadata.NewMemDriver(metadata.MemOptions{})
	t.Cleanup(func() { _ = driver.Close() })
	n, err := node.New(node.Config{NodeID: "n", Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", Store: mem.New(mem.Options{}), Driver: driver,
		Auth: node.Auth{DevKey: nodeKey()}, EmbeddedRedis: true, Linger: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Errorf("stop the node: %v", err)
		}
	})
	if err := n.Start(limited(t)); err != nil {
		t.Fatal(err)
	}
	return n
}

// spawn starts a relay or a worker.
func (b *bank) spawn(t testing.TB, role, kill string) *kid {
	t.Helper()
	c := b.child
	c.Role, c.Kill = role, kill
	return spawn(t, c)
}

// change makes n changes to accounts, one transaction for each and some that are rolled back, and adds their records.
func (b *bank) change(t testing.TB, rng *rand.Rand, n int) {
	t.Helper()
	ctx := limited(t)
	for done := 0; done < n; {
		tx, err := b.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		ch := change{Account: rng.IntN(crashAccounts), Amount: 1 + rng.IntN(100)}
		if err := tx.QueryRow("UPDATE account SET balance = balance + $2, version = version + 1 WHERE account = $1 RETURNING version", ch.Account, ch.Amount).Scan(&ch.Version); err != nil {
			t.Fatal(err)
		}
		value, err := json.Marshal(ch)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.box.Add(ctx, tx, crashTopic, client.Record{Key: fmt.Append(nil, "account-", ch.Account), Value: value, Kind: client.KindJSON}); err != nil {
			t.Fatal(err)
		}
		if rng.IntN(6) == 0 {
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		done++
	}
}

// wantLog checks the log against the accounts: each change once, in order per account, no event ID twice.
func (b *bank) wantLog(t testing.TB) {
	t.Helper()
	ctx := limited(t)
	versions, balances, ids := map[int]int{}, map[int]int{}, map[string]bool{}
	for p := range 3 {
		for offset := int64(0); ; {
			r, err := b.client.Read(ctx, crashTopic, p, client.ReadOptions{Offset: offset})
			if err != nil {
				t.Fatal(err)
			}
			for _, rec := range r.Records {
				var ch change
				if err := json.Unmarshal(rec.Value, &ch); err != nil {
					t.Fatal(err)
				}
				if ch.Version != versions[ch.Account]+1 {
					t.Errorf("account %d: change %d after change %d", ch.Account, ch.Version, versions[ch.Account])
				}
				versions[ch.Account] = ch.Version
				balances[ch.Account] += ch.Amount
				if ids[rec.ID] || rec.ID == "" {
					t.Errorf("event ID %q again", rec.ID)
				}
				ids[rec.ID] = true
			}
			if offset = r.NextOffset; offset == r.Head {
				break
			}
		}
	}
	rows, err := b.db.Query("SELECT account, balance, version FROM account")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var account, balance, version int
		if err := rows.Scan(&account, &balance, &version); err != nil {
			t.Fatal(err)
		}
		if versions[account] != version || balances[account] != balance {
			t.Errorf("account %d: the log has %d changes and balance %d, the table %d and %d", account, versions[account], balances[account], version, balance)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// wantEffects waits until the effects are as many as the changes, and checks that each change had its effect once, in order.
func (b *bank) wantEffects(t testing.TB, table string) {
	t.Helper()
	eventually(t, "everything is consumed", func() error {
		var missing int
		err := b.db.QueryRow("SELECT (SELECT sum(version) FROM account) - (SELECT sum(changes) FROM " + table + ")").Scan(&missing)
		if err == nil && missing > 0 {
			err = fmt.Errorf("%d effects are missing", missing)
		}
		return err
	})
	rows, err := b.db.Query("SELECT account, a.balance, e.balance, a.version, e.changes, e.disorder FROM account a JOIN " + table + ` e USING (account)
		WHERE (a.balance, a.version, a.version, 0) <> (e.balance, e.version, e.changes, e.disorder)`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var account, want, got, version, changes, disorder int
		if err := rows.Scan(&account, &want, &got, &version, &changes, &disorder); err != nil {
			t.Fatal(err)
		}
		t.Errorf("%s: account %d: balance %d, the effects have %d; %d changes, %d effects, %d out of order", table, account, want, got, version, changes, disorder)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// allAcked waits until the queue has nothing left: what is delivered again has no second effect then.
func (b *bank) allAcked(t testing.TB) {
	t.Helper()
	eventually(t, "everything is acked", func() error {
		s, err := b.client.GetSubscription(context.Background(), crashTopic, crashSub)
		if err != nil {
			return err
		}
		for _, p := range s.Partitions {
			if p.Frontier < p.Head {
				return fmt.Errorf("partition %d: frontier %d of %d", p.Partition, p.Frontier, p.Head)
			}
		}
		return nil
	})
}

// relaySteps are where a relay may die, in their order. The second hit of settling needs a batch under way, which the kill before leaves.
var relaySteps = []string{"opened", "assigned", "published", "marking"}

// A relay is killed at each step, and the one after it while it cleans up. Each change is in the log once, in order.
func TestRelayIsKilled(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	for i, step := range relaySteps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, n)
			b.change(t, rand.New(rand.NewPCG(4, uint64(i))), 60)
			first := b.spawn(t, "relay", step+"@3")
			if !first.killed() {
				t.Fatalf("the relay was not killed:\n%s", first.log)
			}
			var waiting int
			if err := b.db.QueryRow("SELECT count(*) FROM forebay_outbox").Scan(&waiting); err != nil || waiting == 0 {
				t.Fatalf("%d rows wait after the kill (%v): it proves nothing", waiting, err)
			}
			if step == "assigned" || step == "published" {
				if second := b.spawn(t, "relay", "settling@1"); !second.killed() {
					t.Fatalf("the relay was not killed:\n%s", second.log)
				}
			}
			last := b.spawn(t, "relay", "")
			drained(t, b.box, b.db)
			last.end(t)
			b.wantLog(t)
		})
	}
}

// Where a consumer may die: before and within the transaction, between it and the ack or the commit of the offset, after the ack.
var (
	workerSteps = []string{"delivered", "inserted", "effect", "committed", "acked"}
	memberSteps = []string{"delivered", "inserted", "effect", "committed"}
)

// A consumer is killed at each step. Each effect happens once.
func TestConsumerIsKilled(t *testing.T) {
	t.Parallel()
	b := newBank(t, startNode(t))
	rng := rand.New(rand.NewPCG(5, 5))
	relay := b.spawn(t, "relay", "")
	for i, step := range workerSteps {
		b.change(t, rng, 20)
		kids := []*kid{b.spawn(t, "worker", step+"@4")}
		if i < len(memberSteps) {
			kids = append(kids, b.spawn(t, "member", memberSteps[i]+"@4"))
		}
		for _, k := range kids {
			if !k.killed() {
				t.Fatalf("a consumer was not killed:\n%s", k.log)
			}
		}
	}
	worker, member := b.spawn(t, "worker", ""), b.spawn(t, "member", "")
	drained(t, b.box, b.db)
	b.wantLog(t)
	b.allAcked(t)
	b.wantEffects(t, queueEffect)
	b.wantEffects(t, groupEffect)
	for _, k := range []*kid{worker, member, relay} {
		k.end(t)
	}
}

// Two relays, two consumers of a queue and one of a group are killed at random steps, over and over, while changes are made.
//
// FOREBAY_CRASH_CHANGES sets the least number of changes (default 120), FOREBAY_CRASH_SEED the seed.
func TestCrashMatrix(t *testing.T) {
	t.Parallel()
	seed := uint64(envInt(t, "FOREBAY_CRASH_SEED", 1))
	changes := envInt(t, "FOREBAY_CRASH_CHANGES", 120)
	b := newBank(t, startNode(t))
	quiet, finish := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	// keep keeps n processes alive, each killed at a random step and replaced until it is quiet, and then ones that are not.
	keep := func(n int, role string, most int, steps ...string) *atomic.Int64 {
		var kills atomic.Int64
		for i := range n {
			rng := rand.New(rand.NewPCG(seed, uint64(len(role)<<8+i)))
			wg.Go(func() {
				for {
					select {
					case <-quiet:
						last := b.spawn(t, role, "")
						<-finish
						last.end(t)
						return
					default:
					}
					kill := steps[rng.IntN(len(steps))]
					if !strings.Contains(kill, "@") {
						kill = fmt.Sprintf("%s@%d", kill, 1+rng.IntN(most))
					}
					k := b.spawn(t, role, kill)
					select {
					case <-k.exit:
						if !k.killed() {
							t.Errorf("a %s ended by itself:\n%s", role, k.log)
							return
						}
						kills.Add(1)
					case <-quiet:
						_ = k.cmd.Process.Kill()
						<-k.exit
					}
				}
			})
		}
		return &kills
	}
	relays := keep(2, "relay", 6, append([]string{"settling@1"}, relaySteps...)...)
	workers := keep(2, "worker", 12, workerSteps...)
	members := keep(1, "member", 20, memberSteps...)
	rng := rand.New(rand.NewPCG(seed, 99))
	enough := func() bool { return relays.Load() >= 6 && workers.Load() >= 6 && members.Load() >= 2 }
	made := 0
	for ; made < changes || !enough() && made < 20*changes; made += 20 {
		b.change(t, rng, 20)
		eventually(t, "relays and consumers keep up", func() error {
			var behind int
			err := b.db.QueryRow("SELECT sum(version) - (SELECT least((SELECT sum(changes) FROM effect_queue), (SELECT sum(changes) FROM effect_group))) FROM account").Scan(&behind)
			if err == nil && behind > 100 {
				err = fmt.Errorf("%d changes behind", behind)
			}
			return err
		})
	}
	close(quiet)
	drained(t, b.box, b.db)
	b.wantLog(t)
	b.allAcked(t)
	b.wantEffects(t, queueEffect)
	b.wantEffects(t, groupEffect)
	close(finish)
	wg.Wait()
	t.Logf("%d changes; killed: %d relays, %d consumers of the queue, %d of the group", made, relays.Load(), workers.Load(), members.Load())
	if !enough() {
		t.Error("too few were killed: that proves little")
	}
}

func envInt(t testing.TB, name string, otherwise int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
