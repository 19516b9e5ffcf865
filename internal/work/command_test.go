package work

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/client"
)

func shell(t *testing.T, script string) (*Command, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	var out, errs bytes.Buffer
	return &Command{
		Args: []string{"/bin/sh", "-c", script}, Environ: []string{"PATH=" + os.Getenv("PATH")}, Topic: "t", Subscription: "s",
		Stdout: LockWriter(&out), Stderr: LockWriter(&errs), Grace: 200 * time.Millisecond,
	}, &out, &errs
}

func TestCommandGetsTheRecord(t *testing.T) {
	c, out, errs := shell(t, `env | grep ^RECORD_ | sort; cat`)
	err := c.Handle(t.Context(), &client.Message{
		Receipt: "3:9:n", Attempt: 2, Record: client.Record{
			Key: []byte("k=1"), Value: []byte("line 1\nline 2"), Kind: client.KindText, Partition: 3, Offset: 9, ID: "e",
			Time: time.UnixMilli(1), Headers: []client.Header{{Name: "a", Value: "<1>"}, {Name: "a", Value: "2"}},
		},
	})
	want := `RECORD_ATTEMPT=2
RECORD_HEADERS=[["a","<1>"],["a","2"]]
RECORD_ID=e
RECORD_KEY=k=1
RECORD_KEY_BASE64=az0x
RECORD_KIND=text
RECORD_OFFSET=9
RECORD_PARTITION=3
RECORD_RECEIPT=3:9:n
RECORD_SUBSCRIPTION=s
RECORD_TIME=1970-01-01T00:00:00.001Z
RECORD_TOPIC=t
line 1
line 2`
	if err != nil || out.String() != want || errs.Len() != 0 {
		t.Errorf("%v\n%s\n%s", err, out, errs)
	}
}

// TestCommandGetsAnyKey: bytes that a variable cannot hold are there as base64 only.
func TestCommandGetsAnyKey(t *testing.T) {
	c, out, _ := shell(t, `echo "${RECORD_KEY-none} ${RECORD_KEY_BASE64-none} $RECORD_KIND $RECORD_HEADERS"`)
	for want, r := range map[string]client.Record{
		"none AGE= data []\n":   {Key: []byte("\x00a"), Value: []byte("x")},
		"none /w== data []\n":   {Key: []byte{255}, Value: []byte{}},
		"  tombstone []\n":      {Key: []byte{}},
		"none none json []\n":   {Value: []byte("1"), Kind: client.KindJSON},
		"k aw== tombstone []\n": {Key: []byte("k")},
	} {
		out.Reset()
		if err := c.Handle(t.Context(), &client.Message{Record: r}); err != nil || out.String() != want {
			t.Errorf("%v: %q, want %q", err, out, want)
		}
	}
}

func TestCommandThatFails(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"says why", `echo first >&2; echo "no such order" >&2; echo >&2; exit 3`, "exit status 3: no such order"},
		{"says nothing", `exit 7`, "exit status 7"},
		{"does not end its line", `printf oops >&2; exit 1`, "exit status 1: oops"},
		{"talks a lot", `head -c 100000 /dev/zero | tr '\0' x >&2; exit 1`, "exit status 1: " + strings.Repeat("x", maxLastLine)},
		{"is killed", `kill -9 $$`, "signal: killed"},
		{"does not read", `exec <&-; exit 4`, "exit status 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd, _, _ := shell(t, c.script)
			if err := cmd.Handle(t.Context(), &client.Message{Record: client.Record{Value: make([]byte, 1<<20)}}); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	absent := &Command{Args: []string{"/no/such/program"}, Stdout: io.Discard, Stderr: io.Discard}
	if err := absent.Handle(t.Context(), &client.Message{}); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("got %v", err)
	}
}

// TestCommandIsEnded: with its children, gently at first, and the cause is told.
func TestCommandIsEnded(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"at once", `echo ready; sleep 60 & wait`},
		{"when it does not listen", `trap '' TERM; echo ready; while :; do sleep 60; done`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd, _, _ := shell(t, c.script)
			ctx, cancel := context.WithCancelCause(t.Context())
			cmd.Stdout = onWrite(func() { cancel(client.ErrLeaseLost) })
			begin := time.Now()
			err := cmd.Handle(ctx, &client.Message{})
			if !errors.Is(err, client.ErrLeaseLost) || time.Since(begin) > 10*time.Second {
				t.Errorf("%v after %s", err, time.Since(begin))
			}
		})
	}
	cmd, _, _ := shell(t, `sleep 60`)
	cmd.TimeLimit = 50 * time.Millisecond
	if err := cmd.Handle(t.Context(), &client.Message{}); !errors.Is(err, errTimeLimit) {
		t.Errorf("got %v", err)
	}
}

type onWrite func()

func (f onWrite) Write(p []byte) (int, error) { f(); return len(p), nil }

// TestCommandLeavesSomethingBehind: a child that holds the output open does not hold up the record.
func TestCommandLeavesSomethingBehind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	cmd, _, _ := shell(t, `sleep 5 & echo $! > `+file)
	if err := cmd.Handle(t.Context(), &client.Message{}); err != nil {
		t.Errorf("got %v", err)
	}
	if raw, err := os.ReadFile(file); err != nil || len(raw) == 0 {
		t.Errorf("%s, %v", raw, err)
	}
}
