package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/client/inbox"
	"github.com/forebaymq/forebay/client/outbox"
)

// A crash test runs relays and consumers as processes of their own, which are this test binary again. CRASH_ROLE says which, CRASH_KILL at
// which hit of which step the process ends by SIGKILL.

// change is what the records of a crash test say.
type change struct {
	Account int `json:"account"`
	Amount  int `json:"amount"`
	Version int `json:"version"` // of the account, rising by one with each change
}

// child is what a process of a crash test gets.
type child struct {
	Role     string
	Database string
	Server   string
	Token    string
	Kill     string // step@n, "" = never
}

const (
	crashTopic  = "changes"
	crashSub    = "effects"
	queueEffect = "effect_queue" // table, and consumer of the inbox, of those who lease
	groupEffect = "effect_group" // of the members of a group
)

// killer ends the process at the nth time that it comes by the step.
func (c *child) killer() func(step string) {
	name, count, ok := strings.Cut(c.Kill, "@")
	n, err := strconv.ParseInt(count, 10, 64)
	if !ok || err != nil {
		return func(string) {}
	}
	var hits atomic.Int64
	return func(step string) {
		if step == name && hits.Add(1) == n {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way; nothing after this line may run
		}
	}
}

// runChild is the main function of a child. It ends when standard input does: when the test takes it away, or is no more.
func runChild(spec string) error {
	var c child
	if err := json.Unmarshal([]byte(spec), &c); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	db, err := sql.Open("pgx", c.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	cl, err := client.New(c.Server, client.WithToken(c.Token), client.WithRetry(client.RetryPolicy{Initial: 20 * time.Millisecond, Max: 100 * time.Millisecond}))
	if err != nil {
		return err
	}
	defer cl.Close()
	switch c.Role {
	case "relay":
		o, err := outbox.New()
		if err != nil {
			return err
		}
		r, err := outbox.NewRelay(o, db, cl, outbox.WithHook(c.killer()), outbox.WithBatch(8, 1<<20), outbox.WithPoll(5*time.Millisecond, 20*time.Millisecond),
			outbox.WithLease(300*time.Millisecond), outbox.WithPauses(5*time.Millisecond, 50*time.Millisecond), outbox.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
		if err != nil {
			return err
		}
		return r.Run(ctx)
	case "worker":
		return c.work(ctx, db, cl)
	case "member":
		return c.member(ctx, db, cl)
	}
	return fmt.Errorf("no role %q", c.Role)
}

// handle applies a record to a table of effects, in the transaction of the inbox.
func (c *child) handle(ctx context.Context, db *sql.DB, cl *client.Client, table string, at func(string)) (func(context.Context, *client.Record) error, error) {
	box, err := inbox.New()
	if err != nil {
		return nil, err
	}
	topic, err := cl.GetTopic(ctx, crashTopic)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, r *client.Record) error {
		at("delivered")
		_, err := box.Do(ctx, db, table, inbox.RecordID(topic.TopicID, r), func(ctx context.Context, tx *sql.Tx) error {
			at("inserted")
			if err := apply(ctx, tx, table, r); err != nil {
				return err
			}
			at("effect")
			return nil
		})
		if err == nil {
			at("committed")
		}
		return err
	}, nil
}

// work leases records, handles and acks them.
func (c *child) work(ctx context.Context, db *sql.DB, cl *client.Client) error {
	at := c.killer()
	handle, err := c.handle(ctx, db, cl, queueEffect, at)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		ms, err := cl.Lease(ctx, crashTopic, crashSub, client.LeaseOptions{Max: 5, Wait: time.Second, Visibility: time.Second})
		if err != nil {
			continue // the server says when it is itself again
		}
		for _, m := range ms {
			if err := handle(ctx, &m.Record); err != nil {
				break // the leases lapse
			}
			if err := cl.Ack(ctx, crashTopic, crashSub, m.Receipt); err != nil && !errors.Is(err, client.ErrLeaseLost) {
				break
			}
			at("acked")
		}
	}
	return nil
}

// member handles records as a member of a group. What it has handled since its last commit is delivered again when it is killed.
func (c *child) member(ctx context.Context, db *sql.DB, cl *client.Client) error {
	handle, err := c.handle(ctx, db, cl, groupEffect, c.killer())
	if err != nil {
		return err
	}
	consumer, err := client.NewConsumer(cl, crashSub, []string{crashTopic}, client.WithConsumerSession(time.Second), client.WithConsumerStart("earliest"))
	if err != nil {
		return err
	}
	return consumer.Run(ctx, func(ctx context.Context, r *client.GroupRecord) error { return handle(ctx, &r.Record) })
}

// apply is the effect of a change. It notes when a change does not follow the one before it.
func apply(ctx context.Context, tx *sql.Tx, table string, r *client.Record) error {
	var ch change
	if err := json.Unmarshal(r.Value, &ch); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `UPDATE `+table+` SET balance = balance + $2, changes = changes + 1, disorder = disorder + CASE WHEN version + 1 = $3 THEN 0 ELSE 1 END,
		version = $3 WHERE account = $1`, ch.Account, ch.Amount, ch.Version)
	return err
}

// kid is a child under way.
type kid struct {
	cmd  *exec.Cmd
	in   io.Closer
	log  *strings.Builder // read after exit
	exit chan struct{}
}

func spawn(t testing.TB, c child) *kid {
	t.Helper()
	spec, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	k := &kid{cmd: exec.Command(os.Args[0]), log: &strings.Builder{}, exit: make(chan struct{})}
	k.cmd.Env = append(os.Environ(), "CRASH_CHILD="+string(spec))
	k.cmd.Stdout, k.cmd.Stderr = k.log, k.log
	if k.in, err = k.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = k.cmd.Wait() // ProcessState says how it ended
		close(k.exit)
	}()
	t.Cleanup(func() {
		_ = k.cmd.Process.Kill()
		<-k.exit
	})
	return k
}

// killed waits for the end, and says whether it was by SIGKILL.
func (k *kid) killed() bool {
	<-k.exit
	w, ok := k.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && w.Signaled() && w.Signal() == syscall.SIGKILL
}

// end asks it to end, and waits.
func (k *kid) end(t testing.TB) {
	t.Helper()
	_ = k.in.Close()
	<-k.exit
	if !k.cmd.ProcessState.Success() {
		t.Errorf("a child ended with %s:\n%s", k.cmd.ProcessState, k.log)
	}
}
