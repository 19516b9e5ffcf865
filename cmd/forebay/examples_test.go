package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/internal/pgtest"
)

// TestExamples builds the client's examples and runs each of them twice, as a reader of them would.
func TestExamples(t *testing.T) {
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", bin+"/", "../../client/examples/...").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := t.TempDir()
	p := startDev(t, dir)
	database := pgtest.Start(t).URL(t)
	token, err := os.ReadFile(filepath.Join(dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		args  []string
		first string
		again string
	}{
		{"orders", nil, "ann: 3 orders, 120 in all\nbob: 3 orders, 150 in all\ncid: 3 orders, 180 in all\n",
			"ann: 6 orders, 240 in all\nbob: 6 orders, 300 in all\ncid: 6 orders, 360 in all\n"},
		{"queue", nil, "4 sent, 3 attempts failed\ndead letter: offset 2 after 2 attempts: no such mailbox\n",
			"4 sent, 3 attempts failed\ndead letter: offset 2 after 2 attempts: no such mailbox\ndead letter: offset 7 after 2 attempts: no such mailbox\n"},
		{"group", nil, "60 events handled\ngroup counters: 3 partitions, 0 records behind\na seek to the earliest record would repeat 60\n",
			"60 events handled\ngroup counters: 3 partitions, 0 records behind\na seek to the earliest record would repeat 120\n"},
		{"outbox", nil, "12 deliveries of 6 purchases\nann has spent 90\nbob has spent 120\n", "12 deliveries of 6 purchases\nann has spent 180\nbob has spent 240\n"},
		{"replay", []string{filepath.Join(bin, "positions.json")}, "10 measurements since the last time\n", "10 measurements since the last time\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, want := range []string{c.first, c.again} {
				cmd := exec.CommandContext(t.Context(), filepath.Join(bin, c.name), c.args...)
				cmd.Env = []string{"FOREBAY_SERVER=" + p.base, "FOREBAY_TOKEN=" + strings.TrimSpace(string(token)), "DATABASE_URL=" + database}
				out, err := cmd.CombinedOutput()
				if err != nil || !strings.HasSuffix(string(out), want) {
					t.Errorf("%v\n%s", err, out)
				}
			}
		})
	}
	// An example without a test here would rot.
	entries, err := os.ReadDir(bin)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 6 { // and the positions
		t.Errorf("examples: %v", entries)
	}
}
