package store

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
)

// indexWalk goes through the entries of the key index in the order of the log,
// one run or table at a time.
type indexWalk struct {
	s       *Store
	runs    []*keyRun   // that are left
	tables  []*keyTable // as above, behind the runs
	keySpan keySpan     // of what is being walked
	rest    []keyEntry  // of it, by position, then hash
	hashes  []uint32    // for one record
	bad     bool        // a run cannot be read; reported
}

func newIndexWalk(s *Store) *indexWalk {
	v := s.index.view()
	return &indexWalk{s: s, runs: v.runs, tables: v.tables()}
}

// peek returns the position and store time of the next entry; ok is false
// behind the last one.
func (w *indexWalk) peek() (position, time int64, ok bool, err error) {
	for len(w.rest) == 0 {
		switch {
		case len(w.runs) > 0:
			r := w.runs[0]
			w.runs = w.runs[1:]
			if r.last < w.s.log.min() {
				continue
			}
			if w.rest, err = w.s.index.readRun(r); err != nil {
				return 0, 0, false, err
			}
			w.keySpan = r.keySpan
		case len(w.tables) > 0:
			t := w.tables[0]
			w.tables = w.tables[1:]
			w.keySpan, w.rest = t.keySpan, slices.Concat(t.pieces()...)
		default:
			return 0, 0, false, nil
		}
		slices.SortFunc(w.rest, func(a, b keyEntry) int {
			return cmp.Or(cmp.Compare(a.position, b.position), cmp.Compare(a.hash, b.hash))
		})
	}
	return w.keySpan.first + int64(w.rest[0].position), w.keySpan.firstTime + int64(w.rest[0].time), true, nil
}

// readRun reads a whole run and verifies it.
func (x *keyIndex) readRun(r *keyRun) ([]keyEntry, error) {
	fd, err := x.handles.acquire(r.file.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, r.damaged(0, "the file is missing")
	}
	if err != nil {
		return nil, err
	}
	defer x.handles.release(fd)
	b := make([]byte, blockSize)
	if err := r.read(fd, 0, b); err != nil {
		return nil, err
	}
	s, fences, ok := parseRunHeader(b)
	if !ok || s != r.keySpan {
		return nil, r.damaged(0, "it is not the header that was written")
	}
	entries := make([]keyEntry, 0, r.entries)
	top := uint32(0) // position of the last record from the first one
	for i := range fences {
		block, err := r.block(fd, i, b)
		if err != nil {
			return nil, err
		}
		for j := range r.inBlock(i) {
			e := block.entry(j)
			if n := len(entries); j == 0 && e.hash != fences[i] ||
				n > 0 && (e.hash < entries[n-1].hash || e.hash == entries[n-1].hash && e.position < entries[n-1].position) {
				return nil, r.damaged(uint32(i)+1, "its entries are not in order")
			}
			entries = append(entries, e)
			top = max(top, e.position)
		}
	}
	if r.first+int64(top) != r.last {
		return nil, r.damaged(0, "it covers other positions than its entries")
	}
	return entries, nil
}

// index compares one record of the log with its entries.
func (c *checker) index(e logEntry, r slot) error {
	w := c.keys
	if w.bad {
		return nil
	}
	var got []uint32
	want := r.appendHashes(w.hashes[:0], e.record)
	w.hashes = want
	slices.Sort(want)
	for {
		position, time, ok, err := w.peek()
		if err != nil {
			return c.badIndex(err)
		}
		if !ok || position > e.position {
			break
		}
		if position < e.position {
			if position >= c.first {
				err = c.problem("%w: an entry points at position %d, where no record of it is", errIndexDamaged, position)
			}
		} else {
			got = append(got, w.rest[0].hash)
			if time != r.time {
				err = c.problem("%w: position %d: it says store time %d, the record %d", errIndexDamaged, position, time, r.time)
			}
		}
		if err != nil {
			return err
		}
		w.rest = w.rest[1:]
	}
	if !slices.Equal(got, want) {
		return c.problem("%w: position %d: topic %q queue %d: it has the hashes %x of the keys, not %x", errIndexDamaged, e.position, r.key.Topic, r.key.ID, got, want)
	}
	return nil
}

// badIndex notes that a part of the index is damaged.
func (c *checker) badIndex(err error) error {
	if !errors.Is(err, errIndexDamaged) {
		return err
	}
	c.keys.bad = true
	c.s.noteStale(err)
	return c.problem("%w", err)
}

// indexRest looks at the entries behind those of the records.
func (c *checker) indexRest() error {
	if c.keys.bad {
		return nil
	}
	position, _, ok, err := c.keys.peek()
	for ; ok && position < c.first; position, _, ok, err = c.keys.peek() {
		c.keys.rest = c.keys.rest[1:]
	}
	switch {
	case err != nil:
		return c.badIndex(err)
	case ok && position <= c.end:
		return c.problem("%w: an entry points at position %d, where no record of it is", errIndexDamaged, position)
	}
	return nil
}
