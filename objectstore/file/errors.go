package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/forebaymq/forebay/objectstore"
)

// classify turns an error of the operating system into one of the contract, with the operation and key in its text.
// Writes call it only for failures before any effect.
func classify(op, key string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s %s: %w", op, key, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s %s: %w", op, key, objectstore.ErrNotFound)
	case errors.Is(err, syscall.ENAMETOOLONG):
		return fmt.Errorf("%s: %w: too long for this file system: %s", op, objectstore.ErrInvalidKey, key)
	}
	if hint := hintOf(err); hint != "" {
		return fmt.Errorf("%s %s: %w: %s: %w", op, key, objectstore.ErrUnavailable, hint, err)
	}
	return fmt.Errorf("%s %s: %w: %w", op, key, objectstore.ErrUnavailable, err)
}

// hintOf says what an operator can do about an error.
func hintOf(err error) string {
	for _, h := range []struct {
		errno syscall.Errno
		text  string
	}{
		{syscall.ENOSPC, "the disk is full"},
		{syscall.EDQUOT, "the disk quota is used up"},
		{syscall.EACCES, "the process may not write there"},
		{syscall.EPERM, "the file system or its permissions forbid it"},
		{syscall.EROFS, "the file system is read-only"},
		{syscall.EMFILE, "the process has too many open files (raise ulimit -n)"},
		{syscall.ENFILE, "the machine has too many open files"},
		{syscall.EIO, "the disk reports an I/O error"},
	} {
		if errors.Is(err, h.errno) {
			return h.text
		}
	}
	return ""
}

// unavailable is classify for steps of a put in which "no such file" does not mean that the object is absent.
func unavailable(op, key string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s %s: %w: %w", op, key, objectstore.ErrUnavailable, err)
	}
	return classify(op, key, err)
}
