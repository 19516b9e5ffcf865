package s3test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The root account of a versitygw that a test starts.
const (
	rootAccess = "forebay-test"
	rootSecret = "forebay-test-secret"
)

// tool gives the path of versitygw, installed in the version that localstack/versions.env pins.
func tool() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	version, err := pinned(root, "VERSITYGW_VERSION")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".tools")
	path := filepath.Join(dir, "versitygw")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Packages are tested at the same time, by processes of their own: one installs, the others wait.
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	stamp := path + ".version"
	if have, err := os.ReadFile(stamp); err == nil && strings.TrimSpace(string(have)) == version {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	install := exec.Command("go", "install", "github.com/versity/versitygw/cmd/versitygw@"+version)
	install.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install versitygw: %w\n%s", err, out)
	}
	return path, os.WriteFile(stamp, []byte(version+"\n"), 0o644)
}

// moduleRoot is the folder of go.mod, above the package under test.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = up
	}
}

// pinned reads one line of localstack/versions.env.
func pinned(root, name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(root, "localstack", "versions.env"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			return value, nil
		}
	}
	return "", fmt.Errorf("localstack/versions.env has no %s", name)
}

// startVersity runs one over dir until the test ends, and gives its URL.
func startVersity(t testing.TB, dir string) string {
	t.Helper()
	path, err := tool()
	if err != nil {
		t.Fatal(err)
	}
	var fault error
	for range 5 { // the port may be taken between its choice and its use
		var url string
		if url, fault = tryVersity(t, path, dir); fault == nil {
			return url
		}
	}
	t.Fatal(fault)
	return ""
}

func tryVersity(t testing.TB, path, dir string) (string, error) {
	t.Helper()
	port, err := freePort()
	if err != nil {
		return "", err
	}
	logFile, err := os.Create(filepath.Join(t.TempDir(), "versitygw.log"))
	if err != nil {
		return "", err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	cmd := exec.Command(path, "--port", addr, "--access", rootAccess, "--secret", rootSecret, "--keep-alive", "--quiet", "--health", "/health", "posix", dir)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	if err := cmd.Start(); err != nil {
		return "", errors.Join(err, logFile.Close())
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed in the end
		_ = logFile.Close()
		close(exited)
	}()
	stop := func() {
		_ = cmd.Process.Kill()
		<-exited
	}
	if err := ready("http://"+addr+"/health", exited); err != nil {
		stop()
		said, _ := os.ReadFile(logFile.Name())
		return "", fmt.Errorf("start versitygw: %w\n%s", err, said)
	}
	t.Cleanup(stop)
	return "http://" + addr, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// ready waits until a server answers, or has ended.
func ready(url string, exited <-chan struct{}) error {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 600 {
		if resp, err := client.Get(url); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-exited:
			return errors.New("it has ended")
		case <-time.After(25 * time.Millisecond): // polls another process: there is no signal to wait for
		}
	}
	return errors.New("no answer")
}
