package store

import (
	"errors"
	"io/fs"
	"os"
)

// syncer is how a store makes, replaces and removes files, and how it makes them
// durable: the content of a file, and the entries of a folder. Whatever a store
// changes in its folder goes through it, so that its ledger is complete; what
// the wal makes by itself is told to it.
type syncer struct {
	file func(*os.File) error
	dir  func(path string) error
	// ledger keeps what PowerOff leaves. nil: nobody will ask.
	ledger *ledger
	// faults are those of a test. nil: none.
	faults *Disk
}

// durable asks the operating system.
func durable() syncer { return syncer{file: (*os.File).Sync, dir: syncDir} }

// volatile does nothing, for throwaway stores.
func volatile() syncer {
	return syncer{file: func(*os.File) error { return nil }, dir: func(string) error { return nil }}
}

// recorded is d with a ledger of what it has made durable. Its price is a look
// at the length of a file for each fsync.
func (d syncer) recorded() syncer {
	l := d.ledger
	if l == nil {
		l = newLedger()
	}
	return syncer{
		ledger: l,
		faults: d.faults,
		file: func(f *os.File) error {
			// Before the fsync: what is written meanwhile may not be covered.
			info, err := f.Stat()
			if err != nil {
				return err
			}
			if err := d.file(f); err != nil {
				return err
			}
			l.covered(f.Name(), info.Size())
			return nil
		},
		dir: func(path string) error {
			names := l.uncovered(path)
			if err := d.dir(path); err != nil {
				return err
			}
			l.listed(path, names)
			return nil
		},
	}
}

// create makes an empty file, or empties the one there is, for reading and
// writing. Neither its bytes nor its name are durable.
func (d syncer) create(path string) (*os.File, error) {
	if err := d.faults.space("open", path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o640)
	if err == nil {
		d.madeFile(path)
	}
	return f, err
}

// open opens a file that is there for reading and writing. What it holds now is
// taken for durable, unless its last fsync has said otherwise.
func (d syncer) open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil || d.ledger == nil {
		return f, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	d.ledger.found(path, info.Size())
	return f, nil
}

// truncate cuts a file. What is written behind its new end is not durable.
func (d syncer) truncate(f *os.File, size int64) error {
	if d.ledger != nil {
		d.ledger.cutOff(f.Name(), size)
	}
	if info, err := f.Stat(); err == nil && info.Size() == size {
		return nil
	}
	return f.Truncate(size)
}

// overwrite writes a piece of a file in place of what is there. The caller syncs
// the file before anybody else does.
func (d syncer) overwrite(f *os.File, b []byte, at int64) error {
	if d.ledger != nil {
		old := make([]byte, len(b))
		if _, err := f.ReadAt(old, at); err != nil {
			return err
		}
		d.ledger.overwritten(f.Name(), at, old)
	}
	return d.write(f, b, at)
}

// write writes to a file.
func (d syncer) write(f *os.File, b []byte, at int64) error {
	if err := d.faults.space("write", f.Name()); err != nil {
		return err
	}
	_, err := f.WriteAt(b, at)
	return err
}

// makeDir makes a folder, unless it is there. Its name is not durable.
func (d syncer) makeDir(path string) error {
	if err := d.faults.space("mkdir", path); err != nil {
		if _, missing := os.Stat(path); missing != nil {
			return err
		}
		return nil
	}
	err := os.Mkdir(path, 0o750)
	if err == nil {
		d.madeDir(path)
	} else if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// rename moves a file or a folder to another name, over what is there.
func (d syncer) rename(from, to string) error {
	replaced := false
	if d.ledger != nil {
		_, err := os.Lstat(to)
		replaced = err == nil
	}
	err := os.Rename(from, to)
	if err == nil && d.ledger != nil {
		d.ledger.renamed(from, to, replaced)
	}
	return err
}

// remove removes a file, or a folder with all that is in it.
func (d syncer) remove(path string) error {
	err := os.RemoveAll(path)
	if err == nil && d.ledger != nil {
		d.ledger.removed(path)
	}
	return err
}

// madeFile tells of a new file that was made by somebody else, or will be.
func (d syncer) madeFile(path string) {
	if d.ledger != nil {
		d.ledger.made(path)
		d.ledger.covered(path, 0)
	}
}

// madeDir is madeFile for a folder.
func (d syncer) madeDir(path string) {
	if d.ledger != nil {
		d.ledger.made(path)
	}
}

// finished tells that all of a file is synced and that nobody will write to it.
func (d syncer) finished(path string) {
	if d.ledger != nil {
		d.ledger.finished(path)
	}
}
