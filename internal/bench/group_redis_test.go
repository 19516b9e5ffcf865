package bench

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/internal/redistest"
)

func TestRedisOps(t *testing.T) {
	server := redistest.Start(t)
	r, err := newRedisOps(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	server.Must("SET", "k", "v")
	if f, err := r.figures(t.Context()); err != nil || f["used_memory"] == 0 || f["total_commands_processed"] == 0 {
		t.Errorf("%v, %v", f, err)
	}
	if err := r.empty(t.Context()); err != nil {
		t.Error(err)
	}
	if n := server.Must("DBSIZE"); n != int64(0) {
		t.Errorf("%v keys are left", n)
	}
	server.Must("CONFIG", "SET", "requirepass", "secret")
	if _, err := r.figures(t.Context()); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Error(err)
	}
	for _, user := range []string{":secret@", "default:secret@"} {
		r, err := newRedisOps(strings.Replace(server.URL(), "://", "://"+user, 1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.figures(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestRedisURLs(t *testing.T) {
	for text, want := range map[string]string{
		"redis://h": "h:6379", "redis://h:1/3": "h:1", "redis://[::1]:2": "[::1]:2", "rediss://h": "", "http://h": "", "redis://": "", "redis://:p%zz@h": "",
	} {
		r, err := newRedisOps(text)
		switch {
		case want == "" && (err == nil || strings.Contains(err.Error(), "zz")):
			t.Errorf("%s: %+v, %v", text, r, err)
		case want != "" && (err != nil || r.address != want):
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
}

func TestRedisAnswers(t *testing.T) {
	for answer, want := range map[string]string{
		"+OK\r\n": "OK", "$3\r\nabc\r\n": "abc", "$0\r\n\r\n": "", "-ERR no\r\n": "error", "$-1\r\n": "error", "$9999999\r\n": "error", "$3\r\na": "error", "": "error", "*0\r\n": "error",
	} {
		var sent bytes.Buffer
		got, err := call(&sent, bufio.NewReader(strings.NewReader(answer)), []string{"INFO", ""})
		if want == "error" && err == nil || want != "error" && (err != nil || got != want) {
			t.Errorf("%q: %q, %v", answer, got, err)
		}
		if sent.String() != "*2\r\n$4\r\nINFO\r\n$0\r\n\r\n" {
			t.Errorf("%q was sent", sent.String())
		}
	}
	if _, err := call(io.Discard, bufio.NewReader(strings.NewReader("+OK\r\n")), nil); err != nil {
		t.Error(err)
	}
}
