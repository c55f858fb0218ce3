//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package store

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// lockFile opens path, making it when missing, and takes an exclusive lock on
// it without waiting. The lock ends when the file is closed, also by the end of
// the process. errLocked means that somebody else holds it.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return nil, err
	}
	return takeLock(f)
}

// lockExisting is lockFile for a file that must be there and may be read-only.
func lockExisting(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, err
	}
	return takeLock(f)
}

func takeLock(f *os.File) (*os.File, error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
}

// unlockFile lets the lock go and closes the file. Closing alone is not enough:
// a process that is being started right now holds copies of all open files for
// a moment, and the lock with them.
func unlockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	if err != nil {
		err = &os.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
	return errors.Join(err, f.Close())
}

// syncDir makes the entries of a folder durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}
