package pgtest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestServer(t *testing.T) {
	s := Start(t)
	a, b := s.DB(t), s.DB(t)
	if _, err := a.Exec("CREATE TABLE x (n int)"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Exec("INSERT INTO x VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Exec("SELECT n FROM x"); err == nil {
		t.Error("two databases share a table")
	}
	s.Crash(t)
	if err := a.Ping(); err == nil {
		t.Error("a crashed server answers")
	}
	s.Restart(t)
	var n int
	if err := a.QueryRow("SELECT n FROM x").Scan(&n); err != nil || n != 7 {
		t.Errorf("after a crash: %d, %v", n, err)
	}
	dir := s.mu.dir
	s.Stop()
	s.Stop()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data is still there: %v", err)
	}
}

// A test that is killed leaves neither a server nor its data behind.
func TestServerEndsWithItsTest(t *testing.T) {
	if os.Getenv("PGTEST_CHILD") != "" {
		s := New()
		s.need(t)
		os.Stdout.WriteString(s.mu.dir + "\n")
		select {} // until it is killed
	}
	cmd := exec.Command(os.Args[0], "-test.run=TestServerEndsWithItsTest")
	cmd.Env = append(os.Environ(), "PGTEST_CHILD=1", "FOREBAY_TEST_POSTGRES=")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var buf [256]byte
	n, err := out.Read(buf[:])
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(string(buf[:n]))
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed
	late := time.After(20 * time.Second)
	for {
		if _, err := os.Stat(dir); os.IsNotExist(err) {
			return
		}
		select {
		case <-late:
			t.Fatalf("%s is still there", dir)
		case <-time.After(10 * time.Millisecond): // polls another process
		}
	}
}
