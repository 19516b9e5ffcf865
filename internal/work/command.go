package work

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/forebaymq/forebay/client"
)

// Command runs a program for each record: the value on its standard input, the rest in variables (see Environ). Exit status 0 is success.
type Command struct {
	Args                []string
	Environ             []string // "NAME=value", of all records
	Topic, Subscription string
	Stdout, Stderr      io.Writer     // shared by all; LockWriter makes them safe for that
	TimeLimit           time.Duration // of one run; 0 = none
	// Grace is how long a program has between SIGTERM and SIGKILL when its run is to end. Default 5 s.
	Grace time.Duration
}

// errTimeLimit is the cause of the end of a run that took too long.
var errTimeLimit = errors.New("the time limit has passed")

// Handle runs the program for one record of a subscription. The error says what went wrong in a form fit for the reason of a nack.
func (c *Command) Handle(ctx context.Context, m *client.Message) error {
	return c.run(ctx, &m.Record, Environ(c.Topic, c.Subscription, m))
}

// HandleOfGroup runs the program for one record that a member of a group has read.
func (c *Command) HandleOfGroup(ctx context.Context, group, topic string, r *client.Record) error {
	return c.run(ctx, r, append(recordEnviron(topic, r), "RECORD_GROUP="+group))
}

func (c *Command) run(ctx context.Context, r *client.Record, env []string) error {
	if c.TimeLimit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.TimeLimit, errTimeLimit)
		defer cancel()
	}
	last := &lastLine{}
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Env = append(c.Environ[:len(c.Environ):len(c.Environ)], env...)
	cmd.Stdin = bytes.NewReader(r.Value)
	cmd.Stdout, cmd.Stderr = c.Stdout, io.MultiWriter(c.Stderr, last)
	// A group of its own: signals meant for the worker do not reach it, and its children end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	if cmd.WaitDelay = c.Grace; c.Grace == 0 {
		cmd.WaitDelay = 5 * time.Second
	}
	err := cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // children that did not go with it; it is no error if there is none
	}
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil:
		return nil // in the second case it has left something behind that holds its output open
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case errors.As(err, &exit):
		if text := last.String(); text != "" {
			return fmt.Errorf("%w: %s", err, text)
		}
		return err
	}
	return fmt.Errorf("run %s: %w", c.Args[0], err)
}

// Environ describes a record of a subscription to a program. Variables begin with RECORD_: those that begin with FOREBAY_ are settings of forebay
// itself, which the program may want to run.
func Environ(topic, subscription string, m *client.Message) []string {
	return append(recordEnviron(topic, &m.Record),
		"RECORD_SUBSCRIPTION="+subscription,
		"RECORD_ATTEMPT="+strconv.Itoa(int(m.Attempt)),
		"RECORD_RECEIPT="+m.Receipt)
}

func recordEnviron(topic string, m *client.Record) []string {
	env := []string{
		"RECORD_TOPIC=" + topic,
		"RECORD_PARTITION=" + strconv.Itoa(int(m.Partition)),
		"RECORD_OFFSET=" + strconv.FormatInt(m.Offset, 10),
		"RECORD_TIME=" + m.Time.UTC().Format(timeFormat),
		"RECORD_KIND=" + kindName(m),
		"RECORD_HEADERS=" + headersJSON(m.Headers),
	}
	if m.Key != nil {
		env = append(env, "RECORD_KEY_BASE64="+base64.StdEncoding.EncodeToString(m.Key))
		if utf8.Valid(m.Key) && bytes.IndexByte(m.Key, 0) < 0 {
			env = append(env, "RECORD_KEY="+string(m.Key))
		}
	}
	if m.ID != "" && strings.IndexByte(m.ID, 0) < 0 {
		env = append(env, "RECORD_ID="+m.ID)
	}
	if !m.ProducerTime.IsZero() {
		env = append(env, "RECORD_PRODUCER_TIME="+m.ProducerTime.UTC().Format(timeFormat))
	}
	return env
}

const timeFormat = "2006-01-02T15:04:05.000Z"

func kindName(m *client.Record) string {
	switch {
	case m.Value == nil:
		return "tombstone"
	case m.Kind == client.KindJSON:
		return "json"
	case m.Kind == client.KindText:
		return "text"
	}
	return "data"
}

// headersJSON gives [["name","value"],...], as the REST API does.
func headersJSON(headers []client.Header) string {
	pairs := make([][2]string, len(headers))
	for i, h := range headers {
		pairs[i] = [2]string{h.Name, h.Value}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(pairs) // strings into memory: it cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}

// lastLine keeps the last line that is not empty of what is written to it, as far as it is needed for a reason.
type lastLine struct {
	mu struct { // what the program has left behind may still write
		sync.Mutex
		line    []byte
		partial []byte
	}
}

const maxLastLine = 512

func (l *lastLine) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		line, rest, ended := bytes.Cut(p, []byte{'\n'})
		l.mu.partial = append(l.mu.partial, line[:min(len(line), maxLastLine-len(l.mu.partial))]...)
		if ended {
			l.flushLocked()
		}
		p = rest
	}
	return n, nil
}

func (l *lastLine) flushLocked() {
	if line := bytes.TrimSpace(l.mu.partial); len(line) > 0 {
		l.mu.line = append(l.mu.line[:0], line...)
	}
	l.mu.partial = l.mu.partial[:0]
}

func (l *lastLine) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushLocked()
	return string(l.mu.line)
}

// LockWriter makes a writer safe for concurrent use.
func LockWriter(w io.Writer) io.Writer { return &lockedWriter{w: w} }

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
