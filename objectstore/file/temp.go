package file

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"
	"golang.org/x/sys/unix"
)

const (
	openLock   = "open.lock"  // held while a store makes its temp folder, so that no other takes it for a dead one's
	matchLock  = "match.lock" // PutIfMatch holds it alone, Delete shares it
	ownerLock  = "lock"       // in each temp folder, held while its store lives
	lockPoll   = 2 * time.Millisecond
	folderPerm = 0o755
)

// temp is the folder in which one Store writes files before they are linked.
type temp struct {
	dir  string
	lock *os.File
	seq  atomic.Uint64
}

// openTemp makes a temp folder for a new Store and removes those of stores that are gone.
//
// Liveness is an flock on a file in the folder: the kernel drops it with the process, however it ends. A folder is made and
// locked under open.lock, and only a holder of open.lock removes folders, so one that is not locked has no owner.
func openTemp(root string, log *slog.Logger) (*temp, error) {
	base := filepath.Join(root, tempFolder)
	if err := os.Mkdir(base, folderPerm); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make temp folder: %w", err)
	}
	gate, err := lockFile(filepath.Join(base, openLock), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer gate.Close()
	if err := removeDead(base, log); err != nil {
		return nil, err
	}
	t := &temp{dir: filepath.Join(base, "w-"+strconv.Itoa(os.Getpid())+"-"+strings.ToLower(rand.Text()))}
	if err := os.Mkdir(t.dir, folderPerm); err != nil {
		return nil, fmt.Errorf("make temp folder: %w", err)
	}
	if t.lock, err = lockFile(filepath.Join(t.dir, ownerLock), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, os.RemoveAll(t.dir))
	}
	return t, nil
}

func removeDead(base string, log *slog.Logger) error {
	entries, err := os.ReadDir(base)
	if err != nil {
		return fmt.Errorf("read temp folder: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		dir := filepath.Join(base, e.Name())
		lock, err := lockFile(filepath.Join(dir, ownerLock), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue // its owner lives
		}
		if err != nil {
			return fmt.Errorf("look at temp folder of another store: %w", err)
		}
		err = os.RemoveAll(dir)
		lock.Close()
		if err != nil {
			return fmt.Errorf("remove temp folder of a store that is gone: %w", err)
		}
		log.Info("removed unfinished writes of a store that is gone", "folder", dir)
	}
	return nil
}

// path gives a new file name in the folder.
func (t *temp) path() string { return filepath.Join(t.dir, strconv.FormatUint(t.seq.Add(1), 16)) }

// close removes the folder, behind the gate as well, so that an opening store does not look into a folder that is half removed.
func (t *temp) close() error {
	gate, err := lockFile(filepath.Join(filepath.Dir(t.dir), openLock), unix.LOCK_EX)
	if err != nil {
		return errors.Join(err, t.lock.Close()) // the next store to open removes the folder
	}
	defer gate.Close()
	return errors.Join(os.RemoveAll(t.dir), t.lock.Close())
}

// lockFile opens path, made if need be, and locks it; with LOCK_NB it is unix.EWOULDBLOCK if another handle has the lock. Closing
// the file unlocks.
func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "flock", Path: path, Err: err}
	}
	return f, nil
}

// waitLock is lockFile that gives up when ctx ends. It polls, because a thread blocked in flock(2) could not be freed then, and
// the holder may be a process that is stopped. Holders keep the lock for a few system calls.
func waitLock(ctx context.Context, clock clockwork.Clock, path string, how int) (*os.File, error) {
	for {
		f, err := lockFile(path, how|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return f, err
		}
		timer := clock.NewTimer(lockPoll)
		select {
		case <-timer.Chan():
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}
