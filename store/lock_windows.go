package store

import (
	"errors"
	"os"
	"syscall"
)

// errorSharingViolation is ERROR_SHARING_VIOLATION: somebody has the file open
// and does not share it.
const errorSharingViolation syscall.Errno = 32

// lockFile opens path, making it when missing, in share mode 0: while it is
// open nobody else can open it. The lock ends when the file is closed, also by
// the end of the process. errLocked means that somebody else holds it.
func lockFile(path string) (*os.File, error) { return openAlone(path, syscall.OPEN_ALWAYS) }

// lockExisting is lockFile for a file that must be there.
func lockExisting(path string) (*os.File, error) { return openAlone(path, syscall.OPEN_EXISTING) }

func openAlone(path string, how uint32) (*os.File, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil,
		how, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errorSharingViolation) {
		return nil, errLocked
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}

// unlockFile lets the lock go.
func unlockFile(f *os.File) error { return f.Close() }

// syncDir does nothing: Windows has no fsync of folders; NTFS journals them.
func syncDir(string) error { return nil }
