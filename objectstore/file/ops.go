package file

import (
	"os"

	"golang.org/x/sys/unix"
)

// ops are the system calls whose order and failures decide what survives a crash, so that tests can watch and fail them.
type ops struct {
	create   func(path string) (*os.File, error) // new file, fails if it exists
	write    func(f *os.File, p []byte) (int, error)
	syncFile func(f *os.File) error
	mkdir    func(path string) error
	openDir  func(path string) (*os.File, error)
	syncDir  func(d *os.File) error
	link     func(from, to string) error
	rename   func(from, to string) error
	remove   func(path string) error
}

func realOps() ops {
	return ops{
		create: func(path string) (*os.File, error) {
			return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		},
		write:    func(f *os.File, p []byte) (int, error) { return f.Write(p) },
		syncFile: (*os.File).Sync,
		mkdir:    func(path string) error { return os.Mkdir(path, 0o755) },
		openDir:  func(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0) },
		syncDir:  (*os.File).Sync,
		link:     os.Link,
		rename:   os.Rename,
		remove:   os.Remove,
	}
}
