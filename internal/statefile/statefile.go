package statefile

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrDamaged is what Load returns when neither the file nor its backup holds
// what was saved.
var ErrDamaged = errors.New("state file damaged")

// The trailer is a line of its own, so that the content before it may be
// opened in any editor. Its length is fixed: it is found from the end.
const (
	trailerFormat = "\n#crc32c %08x\n"
	trailerSize   = len("\n#crc32c 00000000\n")
)

// What is known of the main file's content.
type mainState int

const (
	mainUnknown mainState = iota // neither loaded nor saved yet
	mainGood                     // may become the backup
	mainBad                      // absent or damaged: must not replace a backup
)

// File is a state file with its backup. Safe for concurrent use; one File per
// path and process.
type File struct {
	path   string
	nosync bool
	disk   Disk

	turn    Turn      // one save or load at a time; held over file calls only
	main    mainState // guarded by turn
	damaged error     // guarded by turn: what the last Load had to work around
}

// Disk is what a test does to the disk that a File is on. Its methods may block, and are
// called while others wait for the File.
type Disk interface {
	// BeforeWrite comes before each write to a file; its error, as of a full disk, is
	// that of the write.
	BeforeWrite(path string) error
	// BeforeSync comes before each sync of a file or a folder.
	BeforeSync()
}

// goodDisk is a disk to which nobody does anything.
type goodDisk struct{}

func (goodDisk) BeforeWrite(string) error { return nil }
func (goodDisk) BeforeSync()              {}

// New names a state file. It touches nothing. With nosync saves survive a
// crash of the process but not of the machine.
func New(path string, nosync bool) *File {
	return &File{path: path, nosync: nosync, disk: goodDisk{}, turn: NewTurn()}
}

// On says on which disk the file is, for tests of bad ones; nil is a good one. Reads are
// as always. It waits for a save that runs.
func (f *File) On(d Disk) {
	f.turn.Lock()
	defer f.turn.Unlock()
	if f.disk = d; d == nil {
		f.disk = goodDisk{}
	}
}

func (f *File) backup() string { return f.path + ".bak" }

// Save replaces the content by data and keeps the former one as the backup.
// When it returns nil, data is what the next Load returns, also after a kill
// and, unless nosync, a loss of power. On an error the next Load returns
// either the former content or data, never anything else. A missing folder is
// made. It does not keep data. It blocks for the file calls.
func (f *File) Save(data []byte) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	for _, s := range f.stepsLocked(data) {
		if err := s.do(); err != nil {
			return fmt.Errorf("state file %s: %s: %w", f.path, s.what, err)
		}
	}
	return nil
}

// step is one part of a save. A kill between any two of them, or inside one,
// leaves a folder that loads.
type step struct {
	what string
	do   func() error
}

// stepsLocked is a save of data. The main file is in place all the time.
func (f *File) stepsLocked(data []byte) []step {
	if f.main == mainUnknown {
		_, err := read(f.path)
		f.noteMain(err)
	} else if _, err := os.Stat(f.path); errors.Is(err, fs.ErrNotExist) {
		f.main = mainBad // somebody took it away
	}
	tmp, backupTmp := f.path+".tmp", f.backup()+".tmp"
	steps := []step{{"write the new version", func() error { return f.write(tmp, data) }}}
	// A damaged main file never takes the place of a good backup.
	if f.main == mainGood {
		steps = append(steps,
			step{"link the former version", func() error { return f.link(backupTmp) }},
			step{"keep the former version as " + f.backup(), func() error { return rename(backupTmp, f.backup()) }})
	}
	return append(steps,
		step{"put the new version in place", func() error {
			err := rename(tmp, f.path)
			if err == nil {
				f.main = mainGood
			}
			return err
		}},
		step{"sync its folder", func() error {
			if f.nosync {
				return nil
			}
			return f.syncFolder(filepath.Dir(f.path))
		}})
}

// link gives the main file's content a second name.
func (f *File) link(name string) error {
	if err := remove(name); err != nil {
		return err
	}
	if os.Link(f.path, name) == nil {
		return nil
	}
	// Some file systems have no hard links.
	data, err := read(f.path)
	if err != nil {
		return err
	}
	return f.write(name, data)
}

// rename moves a file onto another one. Moving one name of a file onto another
// name of the same file does nothing, hence the removal.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return remove(from)
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// write makes a new file of data and its trailer, synced unless nosync.
func (f *File) write(path string, data []byte) (err error) {
	if err := f.disk.BeforeWrite(path); err != nil {
		return err
	}
	file, err := f.create(path)
	if err != nil {
		return err
	}
	defer func() {
		if err2 := file.Close(); err == nil {
			err = err2
		}
	}()
	buf := make([]byte, 0, len(data)+trailerSize)
	buf = append(buf, data...)
	buf = fmt.Appendf(buf, trailerFormat, checksum(data))
	if _, err := file.Write(buf); err != nil {
		return err
	}
	if f.nosync {
		return nil
	}
	f.disk.BeforeSync()
	return file.Sync()
}

func (f *File) syncFolder(path string) error {
	f.disk.BeforeSync()
	return syncDir(path)
}

// create makes a new, empty file, never one with leftover bytes, and the
// folder for it when there is none.
func (f *File) create(path string) (*os.File, error) {
	if err := remove(path); err != nil {
		return nil, err
	}
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	file, err := os.OpenFile(path, flags, 0o644)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if !f.nosync {
		if err := f.syncFolder(filepath.Dir(dir)); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, flags, 0o644)
}

// Load returns what was saved last. A damaged or missing main file is replaced
// by the backup, the version saved before it, and Damaged then tells what was
// wrong. found is false, with a nil error, when nothing was ever saved.
//
// Errors: ErrDamaged, naming both files, when neither is good; otherwise what
// the file calls return. The data belongs to the caller.
func (f *File) Load() (data []byte, found bool, err error) {
	f.turn.Lock()
	defer f.turn.Unlock()
	f.damaged = nil
	data, mainErr := read(f.path)
	f.noteMain(mainErr)
	if mainErr == nil {
		return data, true, nil
	}
	if !unusable(mainErr) {
		return nil, false, fmt.Errorf("state file %s: read: %w", f.path, mainErr)
	}
	data, backupErr := read(f.backup())
	switch {
	case backupErr == nil:
		f.damaged = fmt.Errorf("state file %s: %w; the version before it was used: %s", f.path, mainErr, f.backup())
		return data, true, nil
	case !unusable(backupErr):
		return nil, false, fmt.Errorf("state file %s: %w; read its backup: %w", f.path, mainErr, backupErr)
	case errors.Is(mainErr, fs.ErrNotExist) && errors.Is(backupErr, fs.ErrNotExist):
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("%w: %s: %s; its backup %s: %s; put a good copy in place of the first, or move both away to start without this state",
		ErrDamaged, f.path, reason(mainErr), f.backup(), reason(backupErr))
}

// Damaged tells what was wrong with the main file when the last Load returned
// the backup; nil when it returned the main file. It is meant for a log.
func (f *File) Damaged() error {
	f.turn.Lock()
	defer f.turn.Unlock()
	return f.damaged
}

// noteMain remembers, from the error of reading it, whether the main file may
// become the backup.
func (f *File) noteMain(err error) {
	f.main = mainBad
	if err == nil {
		f.main = mainGood
	}
}

// damage is why the content of a file is not what was saved.
type damage string

func (d damage) Error() string { return string(d) }

// unusable reports whether err says that the file does not hold a saved
// version, as opposed to that it could not be read.
func unusable(err error) bool {
	var d damage
	return errors.As(err, &d) || errors.Is(err, fs.ErrNotExist)
}

func reason(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "missing"
	}
	return err.Error()
}

// read returns a file's content without its trailer.
func read(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return decode(raw)
}

// decode cuts the trailer off raw after having checked it.
func decode(raw []byte) ([]byte, error) {
	if len(raw) == 0 {
		return nil, damage("the file is empty")
	}
	if len(raw) < trailerSize {
		return nil, damage(fmt.Sprintf("no checksum line at the end of its %d bytes", len(raw)))
	}
	data, trailer := raw[:len(raw)-trailerSize], raw[len(raw)-trailerSize:]
	want := fmt.Sprintf(trailerFormat, checksum(data))
	switch {
	case string(trailer) == want:
		return data, nil
	case string(trailer[:len("\n#crc32c ")]) == want[:len("\n#crc32c ")]:
		return nil, damage("the checksum line at its end does not fit the content")
	}
	return nil, damage(fmt.Sprintf("no checksum line at the end of its %d bytes", len(raw)))
}

// checksum is CRC-32C: cheap, and it finds every torn, zeroed or mixed file
// but one in four thousand million.
func checksum(data []byte) uint32 {
	return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
}
