package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestConsumeEnds: by a signal while one key is slow, by a failure, by a limit, because nobody reads what it prints, and because the server refuses it. What can be
// committed is, what comes again is told, and nobody stays a member.
func TestConsumeEnds(t *testing.T) {
	dir := t.TempDir()
	p := startDev(t, dir)
	p.must(t, dir, "", "topics", "create", "orders", "--partitions", "1")
	var in strings.Builder
	in.WriteString("{\"k\":\"slow\"}\n{\"k\":\"slow\"}\n")
	for i := range 30 {
		fmt.Fprintf(&in, "{\"k\":\"f%d\"}\n", i)
	}
	p.must(t, dir, in.String(), "publish", "orders", "--key-field", "k")
	committed := func(group string) int64 {
		t.Helper()
		g := p.group(t, dir, group)
		if len(g.Members) != 0 || g.Partitions[0].Committed == nil {
			t.Fatalf("%s: %+v", group, g)
		}
		return *g.Partitions[0].Committed
	}
	// The last one begins long before the second slow one.
	script := `[ "$RECORD_KEY" != slow ] || sleep 0.5; echo $RECORD_OFFSET`
	args := func(group string, more ...string) []string {
		return append([]string{"--group", group, "--topic", "orders", "--start", "earliest"}, more...)
	}
	a := p.consumer(t, dir, args("slow", "--concurrency", "4", "--", "/bin/sh", "-c", "PATH=/usr/bin:/bin; "+script)...)
	until(t, "the fast ones are done", func(lines []string) bool { return len(lines) > 20 }, a.out)
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := a.wait(); err != nil || int64(len(a.out.all())) != committed("slow") || !strings.Contains(strings.Join(a.errs.all(), ""), "orders done for group slow, in ") {
		t.Errorf("%v, %q, %q, committed %d", err, a.out.all(), a.errs.all(), committed("slow"))
	}

	run := func(args ...string) result {
		t.Helper()
		return forebay(t, []string{"PATH=/usr/bin:/bin", "FOREBAY_SERVER=" + p.base, "FOREBAY_TOKEN_FILE=" + filepath.Join(dir, "token")}, "", append([]string{"consume"}, args...)...)
	}
	// The first record fails when others are done.
	r := run(args("stops", "--concurrency", "4", "--", "sh", "-c", `[ $RECORD_OFFSET != 0 ] || { sleep 0.5; exit 1; }; echo $RECORD_OFFSET`)...)
	if n := len(sortedLines(r.out)); r.code != exitFailure || n == 0 || committed("stops") != 0 ||
		!strings.Contains(r.err, fmt.Sprintf("%d records of orders done for group stops, %d of them will come again: they are not committed", n, n)) {
		t.Errorf("%+v", r)
	}
	// The limit leaves no record out that is in front of one that is done.
	if r := run(args("limit", "--concurrency", "4", "--max", "3", "--", "sh", "-c", "echo $RECORD_OFFSET")...); r.code != exitOK || r.out != "0\n1\n2\n" || committed("limit") != 3 {
		t.Errorf("%+v", r)
	}

	// Nobody reads what it prints any more.
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	head := exec.Command(os.Args[0], append([]string{"consume"}, args("head")...)...)
	head.Env = []string{asForebay + "=1", "FOREBAY_SERVER=" + p.base, "FOREBAY_TOKEN_FILE=" + filepath.Join(dir, "token")}
	head.Stdout, head.Stderr = write, &errs
	if err := head.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	if _, err := read.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	_ = read.Close()
	p.must(t, dir, "", "publish", "orders", "1")
	var exit *exec.ExitError
	if err := head.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitFailure || committed("head") != 32 || !strings.Contains(errs.String(), "32 records of orders done") {
		t.Errorf("%v: %s, committed %d", err, errs.String(), committed("head"))
	}

	// What is not a group.
	if r := run("--group", "a/b", "--topic", "orders"); r.code != exitFailure || strings.Count(r.err, "\n") != 1 || !strings.HasPrefix(r.err, "forebay: join group a/b: INVALID_REQUEST") {
		t.Errorf("%+v", r)
	}
}
