package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forebaymq/forebay/client"
)

// sortedLines gives the lines of a command's output, none for none.
func sortedLines(out string) []string {
	if out == "" {
		return nil
	}
	all := lines(out)
	slices.Sort(all)
	return all
}

func (p *devProcess) group(t *testing.T, dir, group string) *client.Group {
	t.Helper()
	g := &client.Group{}
	if err := json.Unmarshal([]byte(p.must(t, dir, "", "groups", "describe", group, "--output", "json").out), g); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestDevConsumes walks through what a newcomer does with a group: read, read on, run a command that fails, go back.
func TestDevConsumes(t *testing.T) {
	dir := t.TempDir()
	p := startDev(t, dir)
	consume := func(args ...string) result {
		t.Helper()
		return forebay(t, []string{"PATH=/usr/bin:/bin", "FOREBAY_SERVER=" + p.base, "FOREBAY_TOKEN_FILE=" + filepath.Join(dir, "token"), "FOREBAY_GROUP=g", "FOREBAY_TOPIC=orders,events"}, "",
			append([]string{"consume"}, args...)...)
	}
	p.must(t, dir, "", "topics", "create", "orders", "--partitions", "3")
	p.must(t, dir, "", "topics", "create", "events", "--partitions", "1")
	var in strings.Builder
	for i := range 30 {
		fmt.Fprintf(&in, "{\"id\":\"o-%d\", \"of\":\"<é>\"}\n", i)
	}
	p.must(t, dir, in.String(), "publish", "orders", "--key-field", "id", "--header", "a=b")
	p.must(t, dir, "", "publish", "events", `{"n":1}`)

	// What it prints is what a read prints, with the topic before it; and a second one has nothing to print.
	var want []string
	for _, topic := range []string{"orders", "events"} {
		for _, line := range lines(p.must(t, dir, "", "read", topic).out) {
			want = append(want, strings.Replace(line, "{", `{"topic":"`+topic+`",`, 1))
		}
	}
	slices.Sort(want)
	r := consume("--start", "earliest", "--until-caught-up", "--output", "json")
	if got := sortedLines(r.out); r.code != exitOK || !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %s", r, want)
	}
	var sum consumeSummary
	all := lines(r.err)
	if err := json.Unmarshal([]byte(all[len(all)-1]), &sum); err != nil || sum.Records != 31 || sum.Error != "" || sum.Group != "g" {
		t.Errorf("%s, %v", r.err, err)
	}
	if r := consume("--start", "earliest", "--until-caught-up"); r.code != exitOK || r.out != "" || !strings.Contains(r.err, "0 records of orders, events done for group g, caught up on the partitions that this member owned") {
		t.Errorf("again: %+v", r)
	}

	// A limit leaves the rest, exactly.
	p.must(t, dir, "", "publish", "orders", "1", "2", "3", "--key", "k")
	if r := consume("--max", "2"); r.code != exitOK || len(lines(r.out)) != 2 || !strings.Contains(r.err, "2 records of orders, events done") {
		t.Errorf("%+v", r)
	}
	if r := consume("--until-caught-up"); r.code != exitOK || len(lines(r.out)) != 1 || !strings.Contains(r.out, `"value":3`) {
		t.Errorf("the rest: %+v", r)
	}
	for _, part := range p.group(t, dir, "g").Partitions {
		if part.Lag != 0 || part.Owner != nil || *part.Committed != part.Head {
			t.Errorf("%+v", part)
		}
	}
	if r := p.must(t, dir, "", "groups", "list"); !strings.Contains(r.out, "\ng ") {
		t.Errorf("%+v", r)
	}

	// Back to the beginning, with a command: the dry run first.
	if r := p.must(t, dir, "", "groups", "seek", "g", "--topic", "orders", "--to", "earliest", "--dry-run"); !strings.Contains(r.err, "0 records skipped, 33 records to be read again") {
		t.Errorf("%+v", r)
	}
	if r := consume("--until-caught-up"); r.out != "" {
		t.Errorf("after the dry run: %+v", r)
	}
	p.must(t, dir, "", "groups", "seek", "g", "--topic", "orders", "--to", "earliest")
	script := `echo "$RECORD_TOPIC $RECORD_GROUP $RECORD_KEY"; [ "$RECORD_KEY" != o-7 ] || { echo "no such customer" >&2; exit 1; }`
	r = consume("--until-caught-up", "--", "sh", "-c", script)
	if r.code != exitFailure || !strings.Contains(r.err, "exit status 1: no such customer (the record is not committed") || !strings.Contains(r.out, "orders g o-7\n") {
		t.Errorf("%+v", r)
	}
	stopped := len(lines(r.out)) - 1
	r = consume("--until-caught-up", "--concurrency", "4", "--on-failure", "skip", "--", "sh", "-c", script)
	if n := len(lines(r.out)); r.code != exitOK || n != 33-stopped || !strings.Contains(r.err, "is skipped: exit status 1: no such customer") || !strings.Contains(r.err, "1 of them skipped") {
		t.Errorf("%d after %d: %+v", n, stopped, r)
	}
	p.must(t, dir, "", "groups", "seek", "g", "--topic", "orders", "--to", "earliest")
	if r := consume("--max", "5", "--", "sh", "-c", "echo $RECORD_KEY"); r.code != exitOK || len(lines(r.out)) != 5 {
		t.Errorf("%+v", r)
	}
	if r := consume("--until-caught-up", "--", "sh", "-c", "echo $RECORD_KEY"); r.code != exitOK || len(lines(r.out)) != 28 {
		t.Errorf("%+v", r)
	}

	p.must(t, dir, "", "groups", "delete", "g")
	if r := p.run(t, dir, "", "groups", "describe", "g"); r.code != exitFailure || !strings.Contains(r.err, "UNKNOWN_GROUP") {
		t.Errorf("%+v", r)
	}
	if r := forebay(t, []string{"FOREBAY_SERVER=" + p.base, "FOREBAY_TOKEN_FILE=" + filepath.Join(dir, "token")}, "", "consume", "--group", "g", "--topic", "none"); r.code != exitFailure || !strings.Contains(r.err, "UNKNOWN_TOPIC") {
		t.Errorf("%+v", r)
	}
}

// transcript is what a process writes, line by line.
type transcript struct {
	mu struct {
		sync.Mutex
		lines []string
		more  chan struct{} // closed at the next line, and at the end
	}
	ended chan struct{}
}

func transcribe(r io.Reader) *transcript {
	l := &transcript{ended: make(chan struct{})}
	l.mu.more = make(chan struct{})
	go func() {
		defer close(l.ended)
		for in := bufio.NewReader(r); ; {
			line, err := in.ReadString('\n')
			l.mu.Lock()
			if line != "" {
				l.mu.lines = append(l.mu.lines, line)
			}
			close(l.mu.more)
			l.mu.more = make(chan struct{})
			l.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return l
}

func (l *transcript) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.mu.lines)
}

func (l *transcript) next() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.more
}

// until waits for lines of one or two that will do.
func until(t *testing.T, what string, enough func(lines []string) bool, one *transcript, two ...*transcript) {
	t.Helper()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	for {
		more, other := one.next(), (<-chan struct{})(nil)
		if len(two) > 0 {
			other = two[0].next()
		}
		some := one.all()
		for _, l := range two {
			some = append(some, l.all()...)
		}
		if enough(some) {
			return
		}
		select {
		case <-more:
		case <-other:
		case <-timer.C:
			t.Fatalf("%s: %q", what, some)
		}
	}
}

// consumerProcess is `forebay consume` as a process, which can be killed.
type consumerProcess struct {
	cmd       *exec.Cmd
	out, errs *transcript
}

func (p *devProcess) consumer(t *testing.T, dir string, args ...string) *consumerProcess {
	t.Helper()
	c := &consumerProcess{cmd: exec.Command(os.Args[0], append([]string{"consume"}, args...)...)}
	c.cmd.Env = []string{asForebay + "=1", "FOREBAY_SERVER=" + p.base, "FOREBAY_TOKEN_FILE=" + filepath.Join(dir, "token")}
	out, err1 := c.cmd.StdoutPipe()
	errs, err2 := c.cmd.StderrPipe()
	if err := errors.Join(err1, err2, c.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	c.out, c.errs = transcribe(out), transcribe(errs)
	t.Cleanup(func() { _ = c.cmd.Process.Kill(); _ = c.wait() })
	return c
}

// wait reads what is left and gives how the process has ended.
func (c *consumerProcess) wait() error {
	<-c.out.ended
	<-c.errs.ended
	return c.cmd.Wait()
}

// owns gives how many partitions a consumer has told of.
func owns(lines []string) (n int) {
	for _, line := range lines {
		for word, sign := range map[string]int{"forebay: reads ": 1, "forebay: gives up ": -1, "forebay: has lost ": -1} {
			if rest, ok := strings.CutPrefix(line, word); ok {
				n += sign * (strings.Count(rest, ",") + 1)
			}
		}
	}
	return n
}

// TestConsumersShare: two processes share a topic; one is killed, and the other goes on with all of it.
func TestConsumersShare(t *testing.T) {
	dir := t.TempDir()
	p := startDev(t, dir)
	p.must(t, dir, "", "topics", "create", "orders", "--partitions", "4")
	args := []string{"--group", "g", "--topic", "orders", "--start", "earliest", "--session-timeout", "2s"}
	a := p.consumer(t, dir, args...)
	until(t, "the first has all", func(lines []string) bool { return owns(lines) == 4 }, a.errs)
	b := p.consumer(t, dir, args...)
	until(t, "the second has half", func(lines []string) bool { return owns(lines) == 2 }, b.errs)
	until(t, "the first has half", func(lines []string) bool { return owns(lines) == 2 }, a.errs)
	if r := p.run(t, dir, "", "groups", "seek", "g", "--topic", "orders", "--to", "earliest"); r.code != exitFailure || !strings.Contains(r.err, "CONFLICT: the group has 2 live members") {
		t.Errorf("%+v", r)
	}

	publish := func(from, to int) {
		t.Helper()
		var in strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&in, "{\"id\":\"o-%d\"}\n", i)
		}
		p.must(t, dir, in.String(), "publish", "orders", "--key-field", "id")
	}
	keys := func(lines []string) map[string]bool {
		t.Helper()
		seen := map[string]bool{}
		for _, line := range lines {
			var r struct{ Key string }
			if err := json.Unmarshal([]byte(line), &r); err != nil || !strings.HasSuffix(line, "\n") {
				t.Fatalf("%q: %v", line, err)
			}
			seen[r.Key] = true
		}
		return seen
	}
	publish(0, 60)
	until(t, "both print", func(lines []string) bool { return len(keys(lines)) == 60 }, a.out, b.out)
	if first, second := len(a.out.all()), len(b.out.all()); first+second != 60 || first == 0 || second == 0 {
		t.Errorf("%d and %d lines for 60 records", first, second)
	}
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := a.wait(); !errors.As(err, &exit) {
		t.Errorf("killed: %v", err)
	}
	publish(60, 120)
	until(t, "the second prints all", func(lines []string) bool {
		seen := keys(lines)
		for i := 60; i < 120; i++ {
			if !seen[fmt.Sprintf("o-%d", i)] {
				return false
			}
		}
		return true
	}, b.out)
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := b.wait(); err != nil {
		t.Errorf("%v: %s", err, b.errs.all())
	}
	keys(a.out.all())
	// It has committed and left: nothing is to be waited for.
	g := p.group(t, dir, "g")
	if g.State != "empty" || len(g.Members) != 0 {
		t.Errorf("%+v", g)
	}
	for _, part := range g.Partitions {
		if part.Lag != 0 {
			t.Errorf("%+v", part)
		}
	}
}

// TestConsumeBehindAGap: retention has overtaken the group. That is said, with what is lost and what to run; and what it says to run works.
func TestConsumeBehindAGap(t *testing.T) {
	dir := t.TempDir()
	p := startDev(t, dir, "--retention-every", "50ms")
	p.must(t, dir, "", "topics", "create", "orders", "--partitions", "1", "--retention-bytes", "300")
	p.must(t, dir, "", "groups", "seek", "g", "--topic", "orders", "--to", "earliest")
	p.must(t, dir, strings.Repeat("{\"n\":1}\n", 100), "publish", "orders", "--batch", "10")
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	var part client.GroupPartitionInfo
	begin := time.Now()
	for same := 0; same < 5; { // nothing tells when retention has been enforced
		<-ticker.C
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("retention is not enforced: %+v", part)
		}
		was := part.LogStart
		if part = p.group(t, dir, "g").Partitions[0]; part.Gap != nil && part.LogStart == was {
			same++
		} else {
			same = 0
		}
	}
	lost := fmt.Sprintf("LOST: retention has deleted %d offsets of orders partition 0 before group g read it: 0 to %d", part.LogStart, part.LogStart-1)
	if r := p.must(t, dir, "", "groups", "describe", "g"); !strings.Contains(r.out, lost) {
		t.Errorf("%+v, want %q", r, lost)
	}
	var r result
	for _, args := range [][]string{{"--until-caught-up"}, {"--", "true"}, nil} {
		r = forebay(t, []string{"PATH=/usr/bin:/bin", "FOREBAY_SERVER=" + p.base, "FOREBAY_TOKEN_FILE=" + filepath.Join(dir, "token")}, "", append([]string{"consume", "--group", "g", "--topic", "orders"}, args...)...)
		if r.code != exitFailure || r.out != "" || !strings.Contains(r.err, lost) {
			t.Errorf("%v: %+v, want %q", args, r, lost)
		}
	}
	remedy := regexp.MustCompile(`(?m)^  forebay (groups seek .*\S) +#`).FindStringSubmatch(r.err)
	if remedy == nil {
		t.Fatalf("no remedy: %+v", r)
	}
	p.must(t, dir, "", strings.Fields(remedy[1])...)
	r = p.must(t, dir, "", "consume", "--group", "g", "--topic", "orders", "--until-caught-up")
	if n := len(lines(r.out)); int64(n) != 100-part.LogStart || !bytes.Contains([]byte(lines(r.out)[0]), fmt.Appendf(nil, `"offset":%d,`, part.LogStart)) {
		t.Errorf("%d lines from %d on: %+v", n, part.LogStart, r)
	}
}
