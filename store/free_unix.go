//go:build darwin || dragonfly || freebsd || linux

package store

import (
	"errors"
	"fmt"
	"syscall"
)

// freeBytes is how much an ordinary user may still write to the disk of a
// folder.
func freeBytes(dir string) (int64, error) {
	var st syscall.Statfs_t
	for {
		err := syscall.Statfs(dir, &st)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("free bytes of %s: %w", dir, err)
		}
		return int64(st.Bavail) * int64(st.Bsize), nil
	}
}

// errNoSpace is what a full disk says.
const errNoSpace = syscall.ENOSPC

// isDiskFull reports whether a write failed because there is no space for it.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isTooLarge reports whether a write failed because of a limit on the size of a
// file.
func isTooLarge(err error) bool { return errors.Is(err, syscall.EFBIG) }
