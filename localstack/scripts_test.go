package localstack

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestScripts: every script is one, and what Python packages they install is pinned.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("*.sh")
	if err != nil || len(scripts) < 6 {
		t.Fatalf("scripts %v, %v", scripts, err)
	}
	for _, script := range scripts {
		if out, err := exec.Command("bash", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
	lists, err := filepath.Glob("requirements-*.txt")
	if err != nil || len(lists) != 2 {
		t.Fatalf("requirements %v, %v", lists, err)
	}
	for _, list := range lists {
		b, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.Contains(line, "==") {
				t.Errorf("%s: %s is not pinned", list, line)
			}
		}
	}
}

// TestEntrypoint: the image's entry makes a key and a token once, which only their owner reads, and becomes forebay.
func TestEntrypoint(t *testing.T) {
	forebay := binary(t)
	keys := t.TempDir()
	var tokens [2]string
	for i := range tokens {
		cmd := exec.Command("./entrypoint.sh", "version")
		cmd.Env = []string{"PATH=" + filepath.Dir(forebay) + ":" + os.Getenv("PATH"), "KEYS=" + keys, "HOME=" + t.TempDir()}
		if out, err := cmd.CombinedOutput(); err != nil || len(out) == 0 {
			t.Fatalf("entrypoint: %v\n%s", err, out)
		}
		b, err := os.ReadFile(filepath.Join(keys, "token"))
		if err != nil || len(b) == 0 {
			t.Fatalf("token %q, %v", b, err)
		}
		tokens[i] = string(b)
	}
	if tokens[0] != tokens[1] {
		t.Error("the second start made another token")
	}
	for _, name := range []string{"token", "dev.key"} {
		info, err := os.Stat(filepath.Join(keys, name))
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v; want it readable by its owner only", name, info, err)
		}
	}
}

// TestS3Script runs localstack/s3.sh: versitygw, three etcd members and a node, and the smoke test that ends its start.
func TestS3Script(t *testing.T) {
	dir, forebay, port := t.TempDir(), binary(t), basePort(t)
	run := func(args ...string) (string, error) {
		cmd := exec.Command("./s3.sh", args...)
		cmd.Env = append(os.Environ(), "BIN="+forebay, "S3_DIR="+dir, "S3_NODES=1", "S3_DRIVER=minio", fmt.Sprint("S3_PORT=", port))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	defer func() {
		if out, err := run("stop"); err != nil {
			t.Errorf("stop: %v\n%s", err, out)
		}
		if out, err := run("status"); err == nil || strings.Contains(out, " runs") {
			t.Errorf("after the stop: %v\n%s", err, out)
		}
	}()
	out, err := run("start")
	if err != nil || !strings.Contains(out, "smoke test passed") {
		t.Fatalf("start: %v\n%s", err, out)
	}
	if out, err := run("start"); err == nil || !strings.Contains(out, "runs already") {
		t.Errorf("a second start: %v\n%s", err, out)
	}
	if out, err := run("status"); err != nil || !strings.Contains(out, "node1 runs") || !strings.Contains(out, "store runs") {
		t.Errorf("status after a second start: %v\n%s", err, out)
	}
}

// basePort finds a number from which on all ports of a script are free.
func basePort(t *testing.T) int {
	t.Helper()
	for base := 20000 + os.Getpid()%200*100; base < 60000; base += 140 {
		free := true
		for _, offset := range []int{0, 1, 100, 101, 102, 110, 111, 112, 120, 130} {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+offset))
			if err != nil {
				free = false
				break
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if free {
			return base
		}
	}
	t.Fatal("no free ports")
	return 0
}
