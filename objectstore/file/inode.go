package file

import (
	"io/fs"
	"syscall"
)

// inodeOf gives the number of the file that a FileInfo of package os describes.
func inodeOf(st fs.FileInfo) uint64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Ino
	}
	return 0
}
