package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// devProcess is `forebay dev` in this process.
type devProcess struct {
	base, ops string
	stop      func() result
}

func startDev(t *testing.T, dir string, args ...string) *devProcess {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, w := io.Pipe()
	var errs bytes.Buffer
	done := make(chan int, 1)
	go func() {
		all := append([]string{"dev", "--data", dir, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--linger", "5ms", "--log-level", "error"}, args...)
		done <- run(ctx, all, stdio{in: strings.NewReader(""), out: w, err: &errs})
		_ = w.Close()
	}()
	p := &devProcess{}
	lines := bufio.NewScanner(out)
	for p.ops == "" && lines.Scan() {
		f := strings.Fields(lines.Text())
		switch {
		case len(f) == 3 && f[0] == "REST":
			p.base = f[2]
		case len(f) > 1 && f[0] == "ops":
			p.ops = f[1]
		}
	}
	drained := make(chan struct{})
	go func() { defer close(drained); _, _ = io.Copy(io.Discard, out) }()
	stopped := false
	p.stop = func() result {
		if stopped {
			return result{}
		}
		stopped = true
		cancel()
		code := <-done
		<-drained
		return result{code: code, err: errs.String()}
	}
	t.Cleanup(func() { p.stop() })
	if p.base == "" || p.ops == "" {
		t.Fatalf("dev did not come up: %+v", p.stop())
	}
	return p
}

func (p *devProcess) run(t *testing.T, dir, stdin string, args ...string) result {
	t.Helper()
	return forebay(t, []string{"FOREBAY_SERVER=" + p.base, "FOREBAY_TOKEN_FILE=" + filepath.Join(dir, "token"), "FOREBAY_RETRY_FOR=10s"}, stdin, args...)
}

func (p *devProcess) must(t *testing.T, dir, stdin string, args ...string) result {
	t.Helper()
	r := p.run(t, dir, stdin, args...)
	if r.code != exitOK {
		t.Fatalf("forebay %s: %+v", strings.Join(args, " "), r)
	}
	return r
}

func lines(s string) []string { return strings.Split(strings.TrimSuffix(s, "\n"), "\n") }

// TestDevEndToEnd walks through what a newcomer does, and restarts in the middle.
func TestDevEndToEnd(t *testing.T) {
	dir := t.TempDir()
	p := startDev(t, dir)
	resp, err := http.Get(p.ops + "/readyz")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("readyz: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if info, err := os.Stat(filepath.Join(dir, "token")); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("token file: %v, %v", info, err)
	}
	if r := forebay(t, nil, "", "dev", "--data", dir, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"); r.code != exitFailure || !strings.Contains(r.err, "in use") {
		t.Errorf("a second process on one folder: %+v", r)
	}

	p.must(t, dir, "", "topics", "create", "orders", "--partitions", "3", "--retention", "keep")
	if r := p.run(t, dir, "", "topics", "create", "orders"); r.code != exitFailure || !strings.Contains(r.err, "exists") {
		t.Errorf("created twice: %+v", r)
	}
	p.must(t, dir, "", "topics", "create", "orders", "--if-not-exists")
	p.must(t, dir, "", "topics", "update", "orders", "--retention-bytes", "1000000")
	var topic struct {
		Partitions int
		Retention  struct {
			Time  *string
			Bytes *int64
		}
	}
	if err := json.Unmarshal([]byte(p.must(t, dir, "", "topics", "get", "orders", "--output", "json").out), &topic); err != nil ||
		topic.Partitions != 3 || topic.Retention.Time != nil || topic.Retention.Bytes == nil {
		t.Errorf("%+v, %v", topic, err)
	}
	if r := p.must(t, dir, "", "topics", "list"); !strings.Contains(r.out, "orders") {
		t.Errorf("%+v", r)
	}

	// Arguments, with a key: all in one partition.
	p.must(t, dir, "", "publish", "orders", `{"n":1}`, `{"n":2}`, "--key", "k", "--header", "a=b,c")
	// Lines of a file, resumable; then the same again, and a longer one.
	file := filepath.Join(dir, "lines.ndjson")
	write := func(n int) {
		var b strings.Builder
		for i := 1; i <= n; i++ {
			fmt.Fprintf(&b, "{\"id\":\"u-%d\",\"n\":%d,\"gone\":%t}\n", i%7, i, i == 5)
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	publish := func() publishSummary {
		r := p.must(t, dir, "", "publish", "orders", "--file", file, "--key-field", "id", "--tombstone-field", "gone=true", "--producer-id", "loader", "--batch", "4", "--output", "json")
		var s publishSummary
		if err := json.Unmarshal([]byte(r.out), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	write(10)
	if s := publish(); s.Acked != 10 || s.Skipped != 0 {
		t.Errorf("first: %+v", s)
	}
	if s := publish(); s.Acked != 0 || s.Skipped != 10 {
		t.Errorf("again: %+v", s)
	}
	if r := p.stop(); r.code != exitOK {
		t.Fatalf("stop: %+v", r)
	}

	p = startDev(t, dir)
	write(13)
	if s := publish(); s.Acked != 3 || s.Skipped != 10 {
		t.Errorf("after the restart: %+v", s)
	}
	p.must(t, dir, "from a pipe\n", "publish", "orders", "--value-as", "text", "--partition", "1")
	all := lines(p.must(t, dir, "", "read", "orders").out)
	if len(all) != 16 {
		t.Fatalf("%d records:\n%s", len(all), strings.Join(all, "\n"))
	}
	seen, tombstones := map[string][]int{}, 0
	for _, line := range all {
		var r struct {
			Key   string
			Value *struct {
				ID string
				N  int
			}
			Text    *string
			Headers [][2]string
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Key == "k" && (len(r.Headers) != 1 || r.Headers[0] != [2]string{"a", "b,c"}):
			t.Errorf("headers %v", r.Headers)
		case r.Value != nil && r.Value.ID != "":
			seen[r.Key] = append(seen[r.Key], r.Value.N)
		case r.Value == nil && r.Text == nil:
			tombstones++
		}
	}
	if tombstones != 1 || fmt.Sprint(seen["u-1"], seen["u-5"]) != "[1 8] [12]" {
		t.Errorf("%d tombstones, %v", tombstones, seen)
	}
	if got := lines(p.must(t, dir, "", "read", "orders", "--limit", "2").out); len(got) != 2 {
		t.Errorf("limit 2: %v", got)
	}
	if got := lines(p.must(t, dir, "", "read", "orders", "--until-head", "--timestamp", "2000-01-01T00:00:00Z").out); len(got) != 16 {
		t.Errorf("by time: %d", len(got))
	}
	if got := lines(p.must(t, dir, "", "tail", "orders", "--from", "earliest", "--limit", "16").out); len(got) != 16 {
		t.Errorf("tail: %d", len(got))
	}
	if r := p.run(t, dir, "", "read", "orders", "--partition", "0", "--from", "999"); r.code != exitFailure || !strings.Contains(r.err, "--from earliest") {
		t.Errorf("beyond the end: %+v", r)
	}
	if r := p.run(t, dir, "1\nnope\n", "publish", "orders"); r.code != exitFailure || !strings.Contains(r.err, "line 2") {
		t.Errorf("a bad line: %+v", r)
	}

	for _, args := range [][]string{
		{"bench", "publish", "--duration", "300ms", "--warmup", "50ms", "--clients", "2", "--record-size", "100", "--batch", "10", "--compress", "zstd", "--ops", p.ops, "--output", "json"},
		{"bench", "publish", "--duration", "300ms", "--warmup", "0s", "--rate", "500", "--encoding", "json", "--record-size", "100", "--batch", "10", "--output", "json"},
		{"bench", "read", "--output", "json"},
		{"bench", "read", "--encoding", "json", "--output", "json"},
		{"bench", "poll", "--count", "3", "--interval", "10ms", "--output", "json"},
	} {
		var report struct {
			Records int64
			Ack     struct{ Count int64 } `json:"ackMillis"`
			Poll    struct{ Count int64 } `json:"pollMillis"`
			Request struct{ Count int64 } `json:"requestMillis"`
			Errors  map[string]int64
			Puts    *struct{ Count int64 }
		}
		r := p.must(t, dir, "", args...)
		if err := json.Unmarshal([]byte(r.out), &report); err != nil {
			t.Fatal(err)
		}
		if report.Ack.Count+report.Request.Count == 0 || len(report.Errors) > 0 || report.Poll.Count == 0 && report.Records == 0 {
			t.Errorf("%v: %s", args, r.out)
		}
		if args[len(args)-3] == p.ops && (report.Puts == nil || report.Puts.Count == 0) {
			t.Errorf("%v: no PUTs are counted: %s", args, r.out)
		}
	}
	if r := p.must(t, dir, "", "bench", "poll", "--count", "1", "--interval", "1ms"); !strings.Contains(r.out, "delivered") {
		t.Errorf("%+v", r)
	}

	var objects []string
	err = filepath.WalkDir(filepath.Join(dir, "objects"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".seg") {
			objects = append(objects, path)
		}
		return err
	})
	if err != nil || len(objects) == 0 {
		t.Fatalf("no segments: %v", err)
	}
	if r := p.must(t, dir, "", "segment", "dump", objects[0], "--records", "--output", "json"); !strings.Contains(r.out, `"type":"batch"`) {
		t.Errorf("%+v", r)
	}
	p.must(t, dir, "", "topics", "delete", "orders")
	if r := p.run(t, dir, "", "read", "orders"); r.code != exitFailure || !strings.Contains(r.err, "UNKNOWN_TOPIC") {
		t.Errorf("a deleted topic: %+v", r)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestServeOverEtcd starts a member by `forebay etcd` and a node by `forebay serve`, and uses them.
func TestServeOverEtcd(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	background := func(args ...string) (first string, wait func() int) {
		out, w := io.Pipe()
		done := make(chan int, 1)
		var errs bytes.Buffer
		go func() {
			done <- run(ctx, args, stdio{in: strings.NewReader(""), out: w, err: &errs})
			_ = w.Close()
		}()
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatalf("forebay %s: %v: status %d: %s", args[0], err, <-done, errs.String())
		}
		return strings.TrimSpace(line), func() int { return <-done }
	}
	line, etcdEnd := background("etcd", "--name", "one", "--data", filepath.Join(dir, "etcd"), "--listen-client", "127.0.0.1:0", "--listen-peer", "127.0.0.1:0")
	endpoint := line[strings.LastIndex(line, " ")+1:]
	token := forebay(t, nil, "", "token", "--tenant", "acme", "--subject", "s", "--data", dir)
	line, serveEnd := background("serve", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--object-store", "file://"+filepath.Join(dir, "objects"),
		"--etcd", "http://"+endpoint, "--dev-key", filepath.Join(dir, "dev.key"), "--linger", "5ms", "--log-level", "error")
	base := strings.TrimSuffix(strings.Fields(line)[3], ",")
	environ := []string{"FOREBAY_SERVER=" + base, "FOREBAY_TOKEN=" + strings.TrimSpace(token.out)}
	for _, args := range [][]string{{"topics", "create", "t"}, {"publish", "t", "1", "2", "3"}} {
		if r := forebay(t, environ, "", args...); r.code != exitOK {
			t.Fatalf("%v: %+v", args, r)
		}
	}
	if r := forebay(t, environ, "", "read", "t"); r.code != exitOK || len(lines(r.out)) != 3 {
		t.Errorf("%+v", r)
	}
	begin := time.Now()
	cancel()
	if code := serveEnd(); code != exitOK {
		t.Errorf("serve ended with %d", code)
	}
	if code := etcdEnd(); code != exitOK {
		t.Errorf("etcd ended with %d", code)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("the end took %s", took)
	}
}
