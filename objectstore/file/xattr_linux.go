package file

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const idAttr = "user.forebay.id"

// setID stores the writer's ID with a file.
func setID(f *os.File, id string) error {
	if err := unix.Fsetxattr(int(f.Fd()), idAttr, []byte(id), 0); err != nil {
		return &os.PathError{Op: "fsetxattr " + idAttr, Path: f.Name(), Err: err}
	}
	return nil
}

// getID reads the writer's ID; "" if the file has none.
func getID(f *os.File) (string, error) {
	var buf [256]byte // longer than any valid ID
	n, err := unix.Fgetxattr(int(f.Fd()), idAttr, buf[:])
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		return "", nil
	case err != nil:
		return "", &os.PathError{Op: "fgetxattr " + idAttr, Path: f.Name(), Err: err}
	}
	return string(buf[:n]), nil
}
