package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// ledger is what a store knows to be durable in its folder: how many bytes of a
// file the last fsync of it covered, and which names the last fsync of their
// folder did, and what was overwritten since. What it does not list is wholly
// durable: it was there before the store was opened, or is finished.
//
// What a loss of power leaves is never less, and may be more: later bytes, later
// names, names that were removed since. The ledger tells the least. Of a file
// that was put in place of another it tells the later one: either may be there.
//
// All paths are clean.
type ledger struct {
	mu     sync.Mutex                     // guards all below
	bytes  map[string]int64               // file -> bytes covered, for files that are written to
	names  map[string]map[string]struct{} // folder -> names in it that are not covered
	former map[string][]formerBytes       // file -> what was overwritten since its last fsync, oldest first
}

// formerBytes is a piece of a file as it was.
type formerBytes struct {
	at   int64
	data []byte
}

func newLedger() *ledger {
	return &ledger{bytes: make(map[string]int64), names: make(map[string]map[string]struct{}), former: make(map[string][]formerBytes)}
}

// covered notes that a file's first bytes are durable, and none behind them.
func (l *ledger) covered(path string, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	path = filepath.Clean(path)
	l.bytes[path] = bytes
	delete(l.former, path)
}

// overwritten notes what a piece of a file was before it is written anew, in
// place, by the one who will sync the file.
func (l *ledger) overwritten(path string, at int64, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	path = filepath.Clean(path)
	l.former[path] = append(l.former[path], formerBytes{at, data})
}

// found notes the length of a file that is opened, unless it is known.
func (l *ledger) found(path string, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	path = filepath.Clean(path)
	if _, known := l.bytes[path]; !known {
		l.bytes[path] = bytes
	}
}

// cutOff notes that a file is cut to a length.
func (l *ledger) cutOff(path string, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	path = filepath.Clean(path)
	if have, known := l.bytes[path]; known {
		l.bytes[path] = min(have, bytes)
	}
}

// finished forgets a file that is wholly durable.
func (l *ledger) finished(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.bytes, filepath.Clean(path))
	delete(l.former, filepath.Clean(path))
}

// made notes a name that its folder's last fsync did not cover.
func (l *ledger) made(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.madeLocked(filepath.Clean(path))
}

func (l *ledger) madeLocked(path string) {
	dir, name := filepath.Split(path)
	dir = filepath.Clean(dir)
	if l.names[dir] == nil {
		l.names[dir] = make(map[string]struct{})
	}
	l.names[dir][name] = struct{}{}
}

// forgetLocked takes a name out of those that are not covered.
func (l *ledger) forgetLocked(path string) {
	dir, name := filepath.Split(path)
	dir = filepath.Clean(dir)
	if names := l.names[dir]; names != nil {
		if delete(names, name); len(names) == 0 {
			delete(l.names, dir)
		}
	}
}

// uncovered lists the names of a folder that an fsync that begins now will cover.
func (l *ledger) uncovered(dir string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := make([]string, 0, len(l.names[filepath.Clean(dir)]))
	for name := range l.names[filepath.Clean(dir)] {
		names = append(names, name)
	}
	return names
}

// listed notes that an fsync of a folder covered names.
func (l *ledger) listed(dir string, names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		l.forgetLocked(filepath.Join(dir, name))
	}
}

// renamed moves what is known of a file or folder to its new name. replaced
// means that there was another of that name, which stays as durable as it was.
func (l *ledger) renamed(from, to string, replaced bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from, to = filepath.Clean(from), filepath.Clean(to)
	l.forgetLocked(from)
	moveLocked(l.bytes, from, to)
	moveLocked(l.names, from, to)
	moveLocked(l.former, from, to)
	if !replaced {
		l.madeLocked(to)
	}
}

// moveLocked gives what is listed at or below one path the names below another,
// in place of what was listed there.
func moveLocked[V any](m map[string]V, from, to string) {
	deleteBelow(m, to)
	for path, v := range m {
		if below(path, from) {
			delete(m, path)
			m[to+path[len(from):]] = v
		}
	}
}

func deleteBelow[V any](m map[string]V, dir string) {
	for path := range m {
		if below(path, dir) {
			delete(m, path)
		}
	}
}

// below reports whether path is dir or lies in it.
func below(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || os.IsPathSeparator(rest[0]))
}

// removed forgets a file or folder.
func (l *ledger) removed(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	path = filepath.Clean(path)
	l.forgetLocked(path)
	deleteBelow(l.bytes, path)
	deleteBelow(l.names, path)
	deleteBelow(l.former, path)
}

// cut makes the folder what a loss of power would leave at the least. No file of
// it may be open.
func (l *ledger) cut() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for dir, names := range l.names {
		for name := range names {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, name)))
		}
	}
	for path, pieces := range l.former {
		if err := putBack(path, pieces); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for path, bytes := range l.bytes {
		info, err := os.Stat(path)
		if err == nil && info.Size() > bytes {
			err = os.Truncate(path, bytes)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// putBack makes pieces of a file what they were.
func putBack(path string, pieces []formerBytes) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for _, p := range slices.Backward(pieces) {
		if _, e := f.WriteAt(p.data, p.at); err == nil {
			err = e
		}
	}
	return errors.Join(err, f.Close())
}
