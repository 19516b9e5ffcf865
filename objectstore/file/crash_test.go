package file

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/forebaymq/forebay/objectstore"
)

const (
	childRoot = "FOREBAY_FILE_CRASH_ROOT"
	childName = "FOREBAY_FILE_CRASH_NAME"
)

// crashBody is what a writer puts under a key: it says who wrote it, and its length and content follow from that.
func crashBody(key, writer string) []byte {
	head := key + " " + writer + "\n"
	r := rand.New(rand.NewPCG(uint64(len(head)), uint64(head[len(head)-2])))
	return append([]byte(head), bytes.Repeat([]byte(head), r.IntN(150_000)/len(head))...)
}

// crashChild puts objects for ever, four at a time, and prints each key once it is acknowledged.
func crashChild(root, name string) int {
	s, err := Open(root, Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var out struct {
		sync.Mutex
		w *bufio.Writer
	}
	out.w = bufio.NewWriter(os.Stdout)
	ctx, stop := contextUntilStdinCloses()
	defer stop()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; ctx.Err() == nil; i += 4 {
				key := fmt.Sprintf("d%d/%x/%06d", i%3, i%5, i)
				_, err := s.PutIfAbsent(ctx, key, crashBody(key, name), name)
				if errors.Is(err, objectstore.ErrExists) {
					continue // the rival's, or an earlier round's
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				out.Lock()
				fmt.Fprintln(out.w, key)
				err = out.w.Flush()
				out.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return 0
}

// TestCrash kills two processes that put the same keys into one store, again and again. What either acknowledged must be there, whole
// and its own; what is there must be whole; and what was in the making must be gone once the store is opened.
func TestCrash(t *testing.T) {
	root := t.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	acked := map[string]string{} // key to writer
	for round := range 5 {
		names := []string{fmt.Sprintf("a%d", round), fmt.Sprintf("b%d", round)}
		acks := make([][]string, len(names))
		var wg sync.WaitGroup
		for i, name := range names {
			killAfter := 1 + r.IntN(20)
			wg.Go(func() { acks[i] = runAndKill(t, root, name, killAfter) })
		}
		wg.Wait()
		for i, name := range names {
			if len(acks[i]) == 0 {
				t.Errorf("round %d: writer %s got nothing done", round, name)
			}
			for _, key := range acks[i] {
				if other, ok := acked[key]; ok {
					t.Errorf("round %d: %s acknowledged to %s and to %s", round, key, other, name)
				}
				acked[key] = name
			}
		}
		verifyCrash(t, root, acked)
	}
}

func verifyCrash(t *testing.T, root string, acked map[string]string) {
	t.Helper()
	s, err := Open(root, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	temps, err := filepath.Glob(filepath.Join(root, tempFolder, "w-*"))
	if err != nil || len(temps) != 1 || temps[0] != s.temp.dir {
		t.Errorf("temp folders %q (%v), want only the open store's", temps, err)
	}
	seen := map[string]bool{}
	for after := ""; ; {
		page, err := s.List(t.Context(), "", after, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Objects {
			body, info, err := s.Get(t.Context(), o.Key)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(body, crashBody(o.Key, info.ID)) {
				t.Errorf("%s by %s: %d bytes that are not what was put", o.Key, info.ID, len(body))
			}
			if writer, ok := acked[o.Key]; ok && writer != info.ID {
				t.Errorf("%s acknowledged to %s is by %s", o.Key, writer, info.ID)
			}
			seen[o.Key] = true
		}
		if page.Next == "" {
			break
		}
		after = page.Next
	}
	for key, writer := range acked {
		if !seen[key] {
			t.Errorf("%s acknowledged to %s is lost", key, writer)
		}
	}
}

// runAndKill runs a child until it has acknowledged n puts, kills it, and gives all that it acknowledged.
func runAndKill(t *testing.T, root, name string, n int) (acks []string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childRoot+"="+root, childName+"="+name)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe() // the child ends when this test does, however it does
	if err != nil {
		t.Error(err)
		return nil
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
		return nil
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return nil
	}
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		if err != nil { // the end of the output; a line without its end was not acknowledged in full
			break
		}
		acks = append(acks, strings.TrimSuffix(line, "\n"))
		if len(acks) == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Errorf("child %s was not killed: %v, stderr %q", name, err, stderr.String())
	}
	return acks
}
