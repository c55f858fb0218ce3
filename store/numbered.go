package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// Extents and index files are series of files with a number for a name. They are
// derived from the log: those that no checkpoint lists are removed.

// stamp tells one making of a file from another of the same name.
type stamp [16]byte

// stampBlock is the first block of a file.
func stampBlock(magic, number uint32, s stamp) []byte {
	b := make([]byte, blockSize)
	binary.BigEndian.PutUint32(b, magic)
	binary.BigEndian.PutUint32(b[4:], number)
	copy(b[8:], s[:])
	return b
}

// isStamped reports whether a file begins with a block and has a size at least.
func isStamped(path string, block []byte, size int64) bool {
	head, err := readStart(path, blockSize)
	if err != nil || string(head) != string(block) {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.Size() >= size
}

func numberedName(number uint32) string { return fmt.Sprintf("%010d", number) }

// parseNumberedName is the reverse of numberedName.
func parseNumberedName(name string) (number uint32, ok bool) {
	n, err := strconv.ParseUint(name, 10, 32)
	return uint32(n), err == nil && numberedName(uint32(n)) == name
}

// removeNumbered removes the files of a folder whose numbers are not in use.
func removeNumbered(disk syncer, dir string, used func(number uint32) bool) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		number, ok := parseNumberedName(entry.Name())
		if !ok || used(number) {
			continue
		}
		if err := disk.remove(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}
