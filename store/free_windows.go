package store

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"
)

const (
	errorHandleDiskFull syscall.Errno = 39   // ERROR_HANDLE_DISK_FULL
	errorDiskFull       syscall.Errno = 112  // ERROR_DISK_FULL
	errorFileTooLarge   syscall.Errno = 223  // ERROR_FILE_TOO_LARGE
	errorDiskQuota      syscall.Errno = 1295 // ERROR_DISK_QUOTA_EXCEEDED
)

// freeBytes is how much the user of this process may still write to the disk of
// a folder.
func freeBytes(dir string) (int64, error) {
	name, err := syscall.UTF16PtrFromString(dir)
	if err != nil {
		return 0, fmt.Errorf("free bytes of %s: %w", dir, err)
	}
	ask := syscall.NewLazyDLL("kernel32.dll").NewProc("GetDiskFreeSpaceExW")
	var free uint64
	if ok, _, err := ask.Call(uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&free)), 0, 0); ok == 0 {
		return 0, fmt.Errorf("free bytes of %s: %w", dir, err)
	}
	return int64(free), nil
}

// errNoSpace is what a full disk says.
const errNoSpace = errorDiskFull

// isDiskFull reports whether a write failed because there is no space for it.
func isDiskFull(err error) bool {
	return errors.Is(err, errorDiskFull) || errors.Is(err, errorHandleDiskFull) || errors.Is(err, errorDiskQuota)
}

// isTooLarge reports whether a write failed because of a limit on the size of a
// file.
func isTooLarge(err error) bool { return errors.Is(err, errorFileTooLarge) }
