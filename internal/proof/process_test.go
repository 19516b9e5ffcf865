package proof

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// binary builds the product once per test run, with failpoints, and gives its path.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "forebay-proof-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "forebay")
	out, err := exec.Command("go", "build", "-tags", "failpoints", "-o", path, "github.com/forebaymq/forebay/cmd/forebay").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// process is one running forebay.
type process struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	ops    string // ops address, "" where there is none
	log    *lockedBuffer
	exited chan struct{}
	err    error // of Wait; read after exited
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() > 1<<20 {
		l.b.Reset() // keep the end of a long log
	}
	return l.b.Write(p)
}

// tail gives the last lines, for a failing test.
func (l *lockedBuffer) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for s := bufio.NewScanner(bytes.NewReader(l.b.Bytes())); s.Scan(); {
		lines = append(lines, s.Text())
	}
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// start runs the binary. env adds to a clean environment.
func start(t *testing.T, name, ops string, env []string, args ...string) *process {
	t.Helper()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, name: name, ops: ops, log: &lockedBuffer{}, exited: make(chan struct{})}
	p.cmd = exec.Command(bin, args...)
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(p.kill)
	return p
}

// startDev starts the embedded fabric over dir/data, with the REST API on the first address and the ops port on the second, and waits
// until it is ready. Its token is in dir/token.
func startDev(ctx context.Context, t *testing.T, dir string, addrs []string, failpoints string) *process {
	t.Helper()
	p := start(t, "dev", addrs[1], []string{"FOREBAY_FAILPOINTS=" + failpoints},
		"dev", "--data", filepath.Join(dir, "data"), "--listen", addrs[0], "--ops-listen", addrs[1], "--token-file", filepath.Join(dir, "token"))
	if err := p.ready(ctx); err != nil {
		t.Fatal(err)
	}
	return p
}

// kill ends the process as kill -9 does, and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// ready waits until the ops port says so.
func (p *process) ready(ctx context.Context) error {
	for {
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+p.ops+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == 200 {
				return nil
			}
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended before it was ready: %v\n%s", p.name, p.err, p.log.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", p.name, ctx.Err(), p.log.tail())
		case <-time.After(20 * time.Millisecond): // polls another process: there is no signal to wait for
		}
	}
}

// ports reserves n free loopback ports for the length of a process start.
func ports(t *testing.T, n int) []string {
	t.Helper()
	var addrs []string
	var ls []net.Listener
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ls = append(ls, l)
		addrs = append(addrs, l.Addr().String())
	}
	for _, l := range ls {
		l.Close()
	}
	return addrs
}

func token(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
