package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/internal/pgtest"
)

// TestExamples builds the client's examples and runs each of them twice, as a reader of them would, who has done what the README says before, and has
// made topics of the examples' names by other settings.
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
	for topic, partitions := range map[string]string{"orders": "1", "example-events": "2", "example-mails": "1", "example-purchases": "9"} {
		p.must(t, dir, "", "topics", "create", topic, "--partitions", partitions)
	}
	p.must(t, dir, "", "publish", "orders", "--value-as", "text", "no JSON at all")
	for _, c := range []struct {
		name  string
		args  []string
		first string
		again string
	}{
		{"orders", nil, "ann: 3 orders, 120 in all\nbob: 3 orders, 150 in all\ncid: 3 orders, 180 in all\n",
			"ann: 6 orders, 240 in all\nbob: 6 orders, 300 in all\ncid: 6 orders, 360 in all\n"},
		{"queue", nil, "4 sent, 3 attempts failed\ndead letter after 2 attempts: no such mailbox\n",
			"4 sent, 3 attempts failed\ndead letter after 2 attempts: no such mailbox\ndead letter after 2 attempts: no such mailbox\n"},
		{"group", nil, "60 events handled\ngroup counters: 2 partitions, 0 records behind\na seek to the earliest record would repeat 60\n",
			"60 events handled\ngroup counters: 2 partitions, 0 records behind\na seek to the earliest record would repeat 120\n"},
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

// TestReadmeAndGreetingAgree: whoever follows both, in whatever order, makes the topic by the same settings. Fewer partitions would be refused, and the
// README reads partition 0 alone.
func TestReadmeAndGreetingAgree(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var puts int
	for _, line := range strings.Split(string(readme), "\n") {
		if strings.Contains(line, "PUT") && strings.Contains(line, "/v1/topics/orders ") {
			if puts++; !strings.HasSuffix(line, "-d '"+demoTopic+"'") {
				t.Errorf("not by %s: %s", demoTopic, line)
			}
		}
	}
	if puts != 1 {
		t.Errorf("the topic is made %d times", puts)
	}
}
