package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	startTimeout = 20 * time.Second
	callTimeout  = 5 * time.Second
	pollEvery    = 5 * time.Millisecond
)

// Server is a redis-server that runs for the length of a test.
type Server struct {
	t      testing.TB
	binary string
	dir    string
	port   int
	o      options
	master *Server // of a replica

	mu struct {
		sync.Mutex
		cmd    *exec.Cmd
		exited chan struct{} // closed when the process is gone
		out    *bytes.Buffer // what it printed; read after exited
	}
}

// Start starts one on a free port of loopback, in a temporary folder, without persistence, and returns when it answers. It is killed
// when the test ends.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return start(t, nil, opts)
}

func start(t testing.TB, master *Server, opts []Option) *Server {
	t.Helper()
	name := os.Getenv("FOREBAY_TEST_REDIS")
	if name == "" {
		name = "redis-server"
	}
	binary, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("this test needs a redis-server: %v. Install it (Debian: apt-get install redis-server), or name one with FOREBAY_TEST_REDIS", err)
	}
	s := &Server{t: t, binary: binary, dir: t.TempDir(), master: master}
	for _, opt := range opts {
		opt(&s.o)
	}
	t.Cleanup(s.stop)
	for range 5 { // the port may be taken between its choice and its use
		if s.port, err = freePort(); err != nil {
			t.Fatal(err)
		}
		if err = s.launch(); err == nil {
			return s
		}
	}
	t.Fatal(err)
	return nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// config is the text of redis.conf. It goes in by standard input, so that a password is not in the list of processes.
func (s *Server) config() string {
	lines := [][2]string{
		{"bind", "127.0.0.1"}, {"port", strconv.Itoa(s.port)}, {"dir", strconv.Quote(s.dir)}, {"daemonize", "no"}, {"save", `""`},
		{"appendonly", "no"}, {"databases", "1"}, {"repl-diskless-sync", "yes"}, {"repl-diskless-sync-delay", "0"},
		{"tcp-backlog", "128"}, {"logfile", `""`},
	}
	if s.o.persist {
		lines = append(lines, [2]string{"appendonly", "yes"}, [2]string{"appendfsync", "always"})
	}
	if s.o.password != "" {
		lines = append(lines, [2]string{"requirepass", strconv.Quote(s.o.password)}, [2]string{"masterauth", strconv.Quote(s.o.password)})
	}
	if s.master != nil {
		lines = append(lines, [2]string{"replicaof", "127.0.0.1 " + strconv.Itoa(s.master.port)})
	}
	lines = append(lines, s.o.config...)
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%s %s\n", l[0], l[1])
	}
	return b.String()
}

// launch starts the process and waits until it answers.
func (s *Server) launch() error {
	cmd, out, exited := exec.Command(s.binary, "-"), &bytes.Buffer{}, make(chan struct{})
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(s.config()), out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is for the test, which then ends the server
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.binary, err)
	}
	go func() {
		_ = cmd.Wait() // it is killed: the error says so and nothing else
		close(exited)
	}()
	s.mu.Lock()
	s.mu.cmd, s.mu.exited, s.mu.out = cmd, exited, out
	s.mu.Unlock()
	tick, late := time.NewTicker(pollEvery), time.NewTimer(startTimeout)
	defer tick.Stop()
	defer late.Stop()
	for {
		pong, err := call(s.Addr(), s.o.password, callTimeout, "PING")
		if err == nil && pong == "PONG" {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("%s ended at once:\n%s", s.binary, out)
		case <-late.C:
			s.stop()
			return fmt.Errorf("%s did not answer within %s (%v):\n%s", s.binary, startTimeout, err, out)
		case <-tick.C:
		}
	}
}

// stop kills the process, if it runs, and waits until it is gone.
func (s *Server) stop() {
	s.mu.Lock()
	cmd, exited := s.mu.cmd, s.mu.exited
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill() // it may have ended already
	<-exited
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is redis://[:password@]host:port/0.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr(), Path: "/0"}
	if s.o.password != "" {
		u.User = url.UserPassword("", s.o.password)
	}
	return u.String()
}

// Kill ends the process as kill -9 does. Restart brings it back.
func (s *Server) Kill() { s.stop() }

// Restart kills the process and starts it again at the same address: empty, unless it persists. A replica becomes one again.
func (s *Server) Restart() {
	s.t.Helper()
	s.stop()
	s.again()
}

func (s *Server) again() {
	s.t.Helper()
	if err := s.launch(); err != nil {
		s.t.Fatal(err)
	}
}

// Pause stops the process in its tracks: connections stay open and nothing is answered.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on. What was sent to it meanwhile takes effect now.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	s.mu.Lock()
	cmd := s.mu.cmd
	s.mu.Unlock()
	if err := cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("%s to redis-server: %v", sig, err)
	}
}

// Do sends one command on a connection of its own and gives its reply: a string, an int64, nil or []any. An error that the server
// answers is a ReplyError.
func (s *Server) Do(args ...string) (any, error) {
	return call(s.Addr(), s.o.password, callTimeout, args...)
}

// Must is Do for what cannot fail.
func (s *Server) Must(args ...string) any {
	s.t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		s.t.Fatalf("redis %s: %v", strings.Join(args, " "), err)
	}
	return reply
}

// Flush removes every key (FLUSHALL). Loaded scripts stay.
func (s *Server) Flush() {
	s.t.Helper()
	s.Must("FLUSHALL", "SYNC")
}

// FlushScripts removes every loaded script (SCRIPT FLUSH). Keys stay.
func (s *Server) FlushScripts() {
	s.t.Helper()
	s.Must("SCRIPT", "FLUSH", "SYNC")
}

// Info gives the fields of one section of INFO.
func (s *Server) Info(section string) (map[string]string, error) {
	reply, err := s.Do("INFO", section)
	if err != nil {
		return nil, err
	}
	text, ok := reply.(string)
	if !ok {
		return nil, fmt.Errorf("INFO answered %T", reply)
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// Snapshot gives the present contents, for Rollback.
func (s *Server) Snapshot() []byte {
	s.t.Helper()
	s.Must("SAVE")
	b, err := os.ReadFile(filepath.Join(s.dir, "dump.rdb"))
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// Rollback kills the process and starts it again at the same address with the contents of an earlier moment, as after a failover that
// lost the writes since. Only for servers that do not persist.
func (s *Server) Rollback(snapshot []byte) {
	s.t.Helper()
	if s.o.persist {
		s.t.Fatal("redistest: a server that persists would not read the snapshot")
	}
	s.stop()
	dump := filepath.Join(s.dir, "dump.rdb")
	if err := os.WriteFile(dump, snapshot, 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.again()
	// Another restart shall be empty.
	if err := os.Remove(dump); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
}
