package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"golang.org/x/sys/unix"

	"github.com/forebaymq/forebay/objectstore"
)

// TestTempFoldersOfOthers: opening removes what dead stores left, and nothing of those that live, in this process or another.
func TestTempFoldersOfOthers(t *testing.T) {
	root := t.TempDir()
	living := openAt(t, root, Options{})
	unfinished := living.temp.path()
	if err := os.WriteFile(unfinished, []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(root, tempFolder, "w-1-dead")
	if err := os.MkdirAll(dead, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{ownerLock, "1", "2"} {
		if err := os.WriteFile(filepath.Join(dead, name), []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	noLock := filepath.Join(root, tempFolder, "w-2-killed-before-its-lock")
	if err := os.Mkdir(noLock, 0o755); err != nil {
		t.Fatal(err)
	}
	second := openAt(t, root, Options{})
	for _, dir := range []string{dead, noLock} {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s of a dead store is still there: %v", dir, err)
		}
	}
	if _, err := os.Stat(unfinished); err != nil {
		t.Errorf("a living store's unfinished write: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(second.temp.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("temp folder of a closed store: %v", err)
	}
	if _, err := living.PutIfAbsent(t.Context(), "k", nil, "w"); err != nil {
		t.Errorf("put of the store that lives on: %v", err)
	}
}

func TestOpenManyAtOnce(t *testing.T) {
	root := filepath.Join(t.TempDir(), "a", "b")
	errs := make(chan error)
	for i := range 10 {
		go func() {
			errs <- func() error {
				for j := range 5 {
					s, err := Open(root, Options{})
					if err != nil {
						return err
					}
					_, err = s.PutIfAbsent(t.Context(), fmt.Sprintf("d/%d-%d", i, j), nil, "w")
					if err := errors.Join(err, s.Close()); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range 10 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	left, err := os.ReadDir(filepath.Join(root, tempFolder))
	if err != nil || len(left) != 1 { // open.lock
		t.Errorf("left in the temp folder: %v, %v", left, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	if os.Geteuid() != 0 { // root may write anywhere
		locked := filepath.Join(t.TempDir(), "locked")
		if err := os.Mkdir(locked, 0o500); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(locked, Options{}); !errors.Is(err, objectstore.ErrUnavailable) || !strings.Contains(err.Error(), "may not write") {
			t.Errorf("open of a folder without permission: %v", err)
		}
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{plain: "not a folder", filepath.Join(plain, "x"): "not a directory"} {
		if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("open %s: %v, want %q", dir, err, want)
		}
	}
	if _, err := Open(t.TempDir(), Options{ParallelPuts: -1}); err == nil || !strings.Contains(err.Error(), "ParallelPuts") {
		t.Errorf("open with bad options: %v", err)
	}
}

// TestForeignFiles: what else lies under the root is not listed.
func TestForeignFiles(t *testing.T) {
	root := t.TempDir()
	s := openAt(t, root, Options{})
	if _, err := s.PutIfAbsent(t.Context(), "mine", nil, "w"); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"lost+found", "folder.d/inner"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".DS_Store", "a\nb", "x%zz", "\xff", "lost+found/x", "folder.d/inner/x", "file.d"} {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	page, err := s.List(t.Context(), "", "", 100)
	if err != nil || len(page.Objects) != 1 || page.Objects[0].Key != "mine" {
		t.Errorf("list: %+v, %v, want only the object", page, err)
	}
}

func TestReadTruncated(t *testing.T) {
	root := t.TempDir()
	s := openAt(t, root, Options{})
	if _, err := s.PutIfAbsent(t.Context(), "k", make([]byte, 100), "w"); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.read(t.Context(), "get", "k", func(size int64) (int64, int64, error) {
		return 0, size, os.Truncate(filepath.Join(root, "k"), 50) // behind our back, between the look at the size and the read
	})
	if !errors.Is(err, objectstore.ErrTruncated) {
		t.Errorf("read of a file that shrank: %v, want ErrTruncated", err)
	}
}

// TestLockWait: a lock held by a process that is stopped does not hold a caller beyond its context.
func TestLockWait(t *testing.T) {
	clock := clockwork.NewFakeClock()
	s := openAt(t, t.TempDir(), Options{Clock: clock})
	info, err := s.PutIfAbsent(t.Context(), "k", []byte("1"), "w")
	if err != nil {
		t.Fatal(err)
	}
	lock, err := lockFile(s.matchLockPath(), unix.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := s.PutIfMatch(ctx, "k", info.ETag, []byte("2"), "w2")
		done <- err
	}()
	waitForWaiter(t, clock)
	clock.Advance(lockPoll) // held still: it waits again
	waitForWaiter(t, clock)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || objectstore.IsIndefinite(err) {
		t.Errorf("put while the lock is held: %v, want context.Canceled, definite", err)
	}
	go func() { done <- s.Delete(t.Context(), "k") }()
	waitForWaiter(t, clock)
	lock.Close()
	clock.Advance(lockPoll)
	if err := <-done; err != nil {
		t.Errorf("delete after the lock was freed: %v", err)
	}
}

func waitForWaiter(t *testing.T, clock *clockwork.FakeClock) {
	t.Helper()
	if err := clock.BlockUntilContext(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
}

// TestModifiedByClock: times come from the injected clock, and replacing moves them on even when the clock stands or went back.
func TestModifiedByClock(t *testing.T) {
	at := time.Date(2031, 2, 3, 4, 5, 6, 789, time.UTC)
	clock := clockwork.NewFakeClockAt(at)
	s := openAt(t, t.TempDir(), Options{Clock: clock})
	first, err := s.PutIfAbsent(t.Context(), "k", []byte("1"), "a")
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.PutIfMatch(t.Context(), "k", first.ETag, []byte("2"), "b")
	if err != nil {
		t.Fatal(err)
	}
	if !first.Modified.Equal(at) || !second.Modified.Equal(at.Add(time.Nanosecond)) {
		t.Errorf("modified %v and %v, want %v and a nanosecond later", first.Modified, second.Modified, at)
	}
}
