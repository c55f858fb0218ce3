//go:build !darwin && !dragonfly && !freebsd && !linux && !windows

package store

import (
	"errors"
	"fmt"
	"syscall"
)

// freeBytes is not known how to ask here, so nothing is refused for a lack of
// space before a write fails.
func freeBytes(dir string) (int64, error) {
	return 0, fmt.Errorf("free bytes of %s: %w", dir, errors.ErrUnsupported)
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
