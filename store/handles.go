package store

import (
	"os"
	"sync"
)

// maxHandles bounds the files kept open for reading.
const maxHandles = 16

// handles keeps the most recently read files open.
type handles struct {
	// mu guards all fields, also those of the handles. Opening and closing a
	// file happens under it.
	mu     sync.Mutex
	open   []*handle // most recently used last
	closed bool
}

// handle is an open file with a count of its users.
type handle struct {
	*os.File
	path    string
	users   int
	dropped bool // no longer in the list: the last user closes it
}

// acquire returns the file, opened for reading. The caller releases it.
func (h *handles) acquire(path string) (*handle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	for i := len(h.open) - 1; i >= 0; i-- {
		if f := h.open[i]; f.path == path {
			copy(h.open[i:], h.open[i+1:])
			h.open[len(h.open)-1] = f
			f.users++
			return f, nil
		}
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if len(h.open) >= maxHandles {
		h.dropLocked(0)
	}
	f := &handle{File: file, path: path, users: 1}
	h.open = append(h.open, f)
	return f, nil
}

// release ends one use of a handle.
func (h *handles) release(f *handle) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.users--
	if f.users == 0 && f.dropped {
		_ = f.Close() // was only read
	}
}

func (h *handles) dropLocked(i int) {
	f := h.open[i]
	h.open = append(h.open[:i], h.open[i+1:]...)
	f.dropped = true
	if f.users == 0 {
		_ = f.Close() // was only read
	}
}

// forget closes a file that is about to be deleted; its last user does, if it is
// being read.
func (h *handles) forget(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, f := range h.open {
		if f.path == path {
			h.dropLocked(i)
			return
		}
	}
}

// close closes every file that nobody uses; the last user closes the others.
func (h *handles) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for len(h.open) > 0 {
		h.dropLocked(0)
	}
}
