package pgtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // registers the driver "pgx"
)

const (
	startTimeout = 60 * time.Second
	pollEvery    = 5 * time.Millisecond
)

// Server is a PostgreSQL. It starts when it is first used.
type Server struct {
	fsync bool

	mu struct { // held while the process starts or ends
		sync.Mutex
		url     *url.URL // of the maintenance database; nil until started
		foreign bool     // somebody else's server
		bin     string   // folder of the binaries
		dir     string   // holds the socket, and the data in data/
		owner   *syscall.Credential
		cmd     *exec.Cmd
		stdin   io.WriteCloser
		exited  chan struct{}
		out     *lockedBuffer
	}
}

// Option changes how a server is started.
type Option func(*Server)

// Fsync makes commits wait for the disk, overriding the default of not.
func Fsync() Option { return func(s *Server) { s.fsync = true } }

// New gives a server that is not started yet. Whoever uses it calls Stop at the end, in TestMain.
func New(opts ...Option) *Server {
	s := &Server{}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// Start gives a server for the length of one test, for what a test does to a server rather than to its data.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := New(opts...)
	t.Cleanup(s.Stop)
	s.need(t)
	return s
}

// need starts the server where it is not running.
func (s *Server) need(t testing.TB) *url.URL {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.url == nil {
		if err := s.startLocked(); err != nil {
			t.Fatal(err)
		}
	}
	return s.mu.url
}

// URL gives the address of a new, empty database, for a driver or a child process.
func (s *Server) URL(t testing.TB) string {
	t.Helper()
	base := s.need(t)
	name := "t_" + strings.ToLower(rand.Text())
	if err := execute(base.String(), "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		t.Fatalf("create a database: %v", err)
	}
	s.mu.Lock()
	foreign := s.mu.foreign
	s.mu.Unlock()
	if foreign { // a server of ours is thrown away whole
		t.Cleanup(func() {
			if err := execute(base.String(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
				t.Errorf("drop the database: %v", err)
			}
		})
	}
	u := *base
	u.Path = "/" + name
	return u.String()
}

// DB opens a new, empty database. It is closed when the test ends.
func (s *Server) DB(t testing.TB) *sql.DB {
	t.Helper()
	return Open(t, s.URL(t))
}

// Open opens the database at an address that URL gave. It is closed when the test ends.
func Open(t testing.TB, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execute(address, statement string) error {
	db, err := sql.Open("pgx", address)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec(statement)
	return err
}

// Stop ends the server and removes its data. It may be called more than once, and on a server that was never used.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.haltLocked()
	if s.mu.dir != "" {
		_ = os.RemoveAll(s.mu.dir)
	}
	s.mu.dir, s.mu.url = "", nil
}

// Tests gives the tests m with the server stopped behind them, for a TestMain that counts goroutines in the end (goleak.VerifyTestMain).
func (s *Server) Tests(m *testing.M) interface{ Run() int } { return tests{s, m} }

type tests struct {
	s *Server
	m *testing.M
}

// Run runs the tests.
func (t tests) Run() int {
	defer t.s.Stop()
	return t.m.Run()
}

// Crash ends the server as a crash does: connections break, transactions under way are lost, what was committed stays. The server stays down
// until Restart.
func (s *Server) Crash(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.foreign {
		t.Fatal("pgtest: the server of FOREBAY_TEST_POSTGRES is not ours to crash: unset it for this test")
	}
	s.haltLocked()
}

// Restart starts a crashed server again on its data, and returns when it answers.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.launchLocked(); err != nil {
		t.Fatal(err)
	}
}

// haltLocked asks the shell around the server to end it at once, and waits.
func (s *Server) haltLocked() {
	if s.mu.cmd == nil {
		return
	}
	_, _ = io.WriteString(s.mu.stdin, "stop\n") // it may be gone already
	<-s.mu.exited
	_ = s.mu.stdin.Close()
	s.mu.cmd = nil
}

func (s *Server) startLocked() error {
	if given := os.Getenv("FOREBAY_TEST_POSTGRES"); given != "" {
		u, err := url.Parse(given)
		if err != nil {
			return fmt.Errorf("FOREBAY_TEST_POSTGRES: %w", err)
		}
		s.mu.url, s.mu.foreign = u, true
		return nil
	}
	var err error
	if s.mu.bin, err = binaries(); err != nil {
		return err
	}
	if s.mu.owner, err = owner(); err != nil {
		return err
	}
	// Not below the folder of the test: that is closed to other users, and its name too long for a socket.
	if s.mu.dir, err = os.MkdirTemp("/tmp", "forebay-pg-"); err != nil {
		return err
	}
	if s.mu.owner != nil {
		if err := os.Chown(s.mu.dir, int(s.mu.owner.Uid), int(s.mu.owner.Gid)); err != nil {
			return err
		}
	}
	init := s.command(filepath.Join(s.mu.bin, "initdb"), "-D", filepath.Join(s.mu.dir, "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := init.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	if err := s.launchLocked(); err != nil {
		return err
	}
	s.mu.url = &url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/postgres", RawQuery: url.Values{"host": {s.mu.dir}}.Encode()}
	return nil
}

// guard runs the server until a line comes from standard input. Where that ends without a line the test has been killed, and what it left
// is removed.
const guard = `dir=$1; shift
exec 3<&0
"$@" </dev/null &
server=$!
{ read -r line <&3 || : >"$dir/orphan"; kill -QUIT $server; } 2>/dev/null &
watch=$!
wait $server
kill $watch 2>/dev/null
[ ! -e "$dir/orphan" ] || rm -rf "$dir"
`

func (s *Server) launchLocked() error {
	onOff := map[bool]string{true: "on", false: "off"}[s.fsync]
	cmd := s.command("/bin/sh", "-c", guard, "guard", s.mu.dir, filepath.Join(s.mu.bin, "postgres"), "-D", filepath.Join(s.mu.dir, "data"), "-k", s.mu.dir,
		"-c", "listen_addresses=", "-c", "unix_socket_permissions=0700", "-c", "max_connections=200", "-c", "shared_buffers=32MB",
		"-c", "fsync="+onOff, "-c", "full_page_writes="+onOff, "-c", "deadlock_timeout=200ms", "-c", "log_min_messages=log")
	out := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // what it printed says why
		close(exited)
	}()
	s.mu.cmd, s.mu.stdin, s.mu.exited, s.mu.out = cmd, stdin, exited, out
	if err := s.readyLocked(); err != nil {
		s.haltLocked()
		return fmt.Errorf("%w\n%s", err, out.String())
	}
	return nil
}

// readyLocked returns when the server answers.
func (s *Server) readyLocked() error {
	db, err := sql.Open("pgx", "postgres://postgres@/postgres?host="+url.QueryEscape(s.mu.dir))
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.mu.exited:
			return errors.New("postgres ended before it was ready")
		case <-ctx.Done():
			return fmt.Errorf("postgres not ready within %s: %w", startTimeout, err)
		case <-tick.C:
		}
	}
}

// command makes a command that runs as the owner of the data, in a process group of its own: an interrupt at the terminal is for the test.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.mu.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "HOME=" + s.mu.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.mu.owner}
	return cmd
}

// binaries gives the folder of initdb and postgres: that of PATH, else the newest of Debian's.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	best, version := "", 0
	for _, path := range found {
		if v, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))); err == nil && v > version {
			best, version = filepath.Dir(path), v
		}
	}
	if best == "" {
		return "", errors.New("this test needs PostgreSQL: neither PATH nor /usr/lib/postgresql/*/bin has initdb. " +
			"Install it (Debian: apt-get install postgresql), or name a server of your own with FOREBAY_TEST_POSTGRES=postgres://user:secret@host:5432/postgres")
	}
	return best, nil
}

// owner says as whom to run the server: as the test, which must not be root.
func owner() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: true}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")
}

// lockedBuffer keeps the end of what a process printed.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() > 1<<20 {
		l.b.Reset()
	}
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
