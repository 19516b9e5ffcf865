package proof

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/forebaymq/forebay/internal/failpoint"
	"github.com/forebaymq/forebay/internal/s3test"
)

const changesFile = "testdata/changes.ndjson.gz"

// changes reads the real input: 30,481 file changes, oldest first. byPath keeps the lines of each path in the file's order.
func changes(t *testing.T) (lines int, byPath map[string][]string) {
	t.Helper()
	f, err := os.Open(changesFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	byPath = map[string][]string{}
	s := bufio.NewScanner(z)
	for s.Scan() {
		var c struct {
			Path string `json:"path"`
		}
		if err := json.Unmarshal(s.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		byPath[c.Path] = append(byPath[c.Path], s.Text())
		lines++
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return lines, byPath
}

// TestChanges publishes the real input into 24 partitions with a producer sequence, kills the server in the middle, then the publishing
// command, resumes, and reads everything back: per path exactly the file's order, every line exactly once.
//
// On files, and on a real S3 server by both drivers.
func TestChanges(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	t.Run("file", func(t *testing.T) { changesOn(ctx, t, onFiles(ctx, t)) })
	t.Run("s3", func(t *testing.T) { changesOn(ctx, t, onServer(ctx, t, (*s3test.Server).S3URL)) })
	t.Run("minio", func(t *testing.T) { changesOn(ctx, t, onServer(ctx, t, (*s3test.Server).MinioURL)) })
}

func changesOn(ctx context.Context, t *testing.T, s *single) {
	lines, byPath := changes(t)
	if lines != 30481 || len(byPath) != 2997 {
		t.Fatalf("the input has %d lines and %d paths", lines, len(byPath))
	}
	publish := func() *process {
		return start(t, "publish", "", []string{"FOREBAY_SERVER=http://" + s.rest, "FOREBAY_TOKEN_FILE=" + s.tokenFile},
			"publish", "changes", "--file", changesFile, "--key-field", "path", "--producer-id", "importer", "--batch", "50", "--output", "json")
	}

	server := s.boot(failpoint.AfterCommit + "=kill@150")
	node := s.client(t)
	if err := node.createTopic(ctx, "changes", 24); err != nil {
		t.Fatal(err)
	}
	heads := func() (total int64) {
		var out struct {
			PartitionInfo []struct {
				Head int64 `json:"head"`
			} `json:"partitionInfo"`
		}
		if err := node.call(ctx, "GET", "/v1/topics/changes", nil, &out); err != nil {
			t.Fatal(err)
		}
		for _, p := range out.PartitionInfo {
			total += p.Head
		}
		return total
	}
	cmd := publish()
	select {
	case <-server.exited: // killed between commit and acknowledgement; the command waits for it to come back
	case <-cmd.exited:
		t.Fatalf("the command ended before the server was killed: %v\n%s", cmd.err, cmd.log.tail())
	}
	s.boot("")
	before := heads()
	if before == 0 || before >= int64(lines) {
		t.Fatalf("killed with %d of %d records stored: not the middle", before, lines)
	}
	if err := within(ctx, func() error { // the command has gone on by itself
		if n := heads(); n < before+2000 {
			return fmt.Errorf("%d records", n)
		}
		return nil
	}); err != nil {
		t.Fatalf("%v\n%s", err, cmd.log.tail())
	}
	cmd.kill()
	if n := heads(); n >= int64(lines) {
		t.Fatalf("the command was done before it was killed")
	}

	cmd = publish()
	<-cmd.exited
	if cmd.err != nil {
		t.Fatalf("resumed publish: %v\n%s", cmd.err, cmd.log.tail())
	}
	t.Logf("resumed after %d and %s", before, cmd.log.tail())

	got := map[string][]string{}
	total := 0
	for p := range 24 {
		for next := int64(0); ; {
			var out struct {
				Records []struct {
					Key   string          `json:"key"`
					Value json.RawMessage `json:"value"`
				} `json:"records"`
				NextOffset, Head int64
			}
			if err := node.call(ctx, "GET", fmt.Sprintf("/v1/topics/changes/partitions/%d/records?offset=%d&limit=5000", p, next), nil, &out); err != nil {
				t.Fatal(err)
			}
			for _, r := range out.Records {
				got[r.Key] = append(got[r.Key], string(r.Value))
				total++
			}
			if next = out.NextOffset; next >= out.Head {
				break
			}
		}
	}
	if total != lines {
		t.Errorf("%d records stand, the file has %d lines", total, lines)
	}
	for path, want := range byPath {
		if fmt.Sprint(got[path]) != fmt.Sprint(want) {
			t.Errorf("path %s: read %d changes, want %d in the file's order", path, len(got[path]), len(want))
		}
	}
}
