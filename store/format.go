package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// currentFormat is the version of everything inside a data folder. A change
// that an older build cannot read raises it.
const currentFormat = 1

// Names inside the data folder.
const (
	formatName     = "FORMAT"
	lockName       = "LOCK"
	configName     = "config" // the broker's, not ours
	commitLogName  = "commitlog"
	queuesName     = "consumequeue"
	checkpointName = "checkpoint"
	tempSuffix     = ".tmp"
)

var errLocked = errors.New("locked")

// identity is the content of the FORMAT file.
type identity struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	Broker  string `json:"broker"`
	ID      int64  `json:"id"`
	// CRC is that of the line without it, in hexadecimal. A folder of before it was
	// written has none.
	CRC string `json:"crc32c,omitempty"`
}

// sealed is i with its checksum.
func (i identity) sealed() identity {
	i.CRC = ""
	text, _ := json.Marshal(i) // strings and integers
	i.CRC = fmt.Sprintf("%08x", crc32.Checksum(text, castagnoli))
	return i
}

func (i identity) String() string {
	return fmt.Sprintf("broker %q with id %d of cluster %q", i.Broker, i.ID, i.Cluster)
}

// claimDir makes or verifies the data folder of cfg and takes its lock. It
// changes nothing in a folder that it refuses. unlockFile gives the lock back.
func claimDir(cfg Config, sync syncer) (*os.File, error) {
	if err := makeDirs(filepath.Clean(cfg.Dir), sync); err != nil {
		return nil, fmt.Errorf("store: make folder %s: %w", cfg.Dir, err)
	}
	// The folder is looked at before the lock file is made in it, and again
	// under the lock, when its maker has finished.
	if _, err := readIdentity(cfg.Dir); err != nil {
		return nil, err
	}
	lock, err := lockFile(filepath.Join(cfg.Dir, lockName))
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("store: folder %s is in use by another open store; close that one or choose another folder: %w", cfg.Dir, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("store: lock folder %s: %w", cfg.Dir, err)
	}
	if err := cfg.identify(sync); err != nil {
		return nil, errors.Join(err, unlockFile(lock))
	}
	return lock, nil
}

// misplaced is the first thing in a data folder that is not a folder but has the name
// of one, and what can be done about it.
func misplaced(dir string) (path, remedy string, err error) {
	for _, name := range []string{commitLogName, queuesName, indexName} {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", "", fmt.Errorf("store: look at %s: %w", path, err)
		case info.IsDir():
		case name == commitLogName:
			return path, "restore that folder from a copy", nil
		default:
			return path, "move it away: the next start makes the folder again, from the commit log", nil
		}
	}
	return "", "", nil
}

// checkFolders refuses a data folder with a file in place of one of its folders.
func checkFolders(dir string) error {
	path, remedy, err := misplaced(dir)
	if path != "" {
		err = fmt.Errorf("store: %s is a file, where a store has a folder; %s: %w", path, remedy, ErrNotAStore)
	}
	return err
}

// makeDirs makes a folder and those above it that are missing, from the top, and
// makes the entry of each in its parent durable. dir is a clean path.
func makeDirs(dir string, sync syncer) error {
	var missing []string
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
			break // there, or MkdirAll knows better what is wrong
		}
		missing = append(missing, at)
		if filepath.Dir(at) == at {
			break // a drive that is not there
		}
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	for _, made := range slices.Backward(missing) {
		sync.madeDir(made)
		if err := sync.dir(filepath.Dir(made)); err != nil {
			return fmt.Errorf("sync parent of %s: %w", made, err)
		}
	}
	return nil
}

// identify compares the identity in the folder with the configured one, or
// writes it when the folder is new.
func (c Config) identify(sync syncer) error {
	mine := identity{Format: currentFormat, Cluster: c.Cluster, Broker: c.Broker, ID: c.ID}
	theirs, err := readIdentity(c.Dir)
	if err != nil {
		return err
	}
	if theirs == nil {
		text, err := json.Marshal(mine.sealed())
		if err != nil {
			return fmt.Errorf("store: encode %s: %w", formatName, err)
		}
		if err := replaceFile(filepath.Join(c.Dir, formatName), append(text, '\n'), sync); err != nil {
			return fmt.Errorf("store: write %s: %w", formatName, err)
		}
		// The folder's own entry in its parent.
		if err := sync.dir(filepath.Dir(filepath.Clean(c.Dir))); err != nil {
			return fmt.Errorf("store: sync parent of %s: %w", c.Dir, err)
		}
		return nil
	}
	theirs.Format, theirs.CRC = currentFormat, ""
	if *theirs != mine {
		return fmt.Errorf("store: folder %s belongs to %v, not to %v; give each broker a folder of its own: %w", c.Dir, *theirs, mine, ErrForeign)
	}
	return nil
}

// readIdentity reads the FORMAT file. It returns nil for a folder that is new:
// empty but for what a start that was cut short, or the broker, left there.
func readIdentity(dir string) (*identity, error) {
	text, err := os.ReadFile(filepath.Join(dir, formatName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, checkNew(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("store: read %s: %w", formatName, err)
	}
	var id identity
	if err := json.Unmarshal(text, &id); err != nil || id.Format < 1 {
		return nil, fmt.Errorf("store: folder %s holds a file %s that is not a store's; choose an empty folder or restore that file: %w", dir, formatName, ErrNotAStore)
	}
	whole := id.CRC == "" || id == id.sealed()
	switch { // a newer format may have another checksum, so it comes first
	case id.Format > currentFormat && whole:
		return nil, fmt.Errorf("store: folder %s has format %d, this build reads %d; upgrade pocketmq: %w", dir, id.Format, currentFormat, ErrNewerFormat)
	case id.Format > currentFormat:
		return nil, fmt.Errorf("store: folder %s has format %d, this build reads %d; upgrade pocketmq, or restore file %s from a copy if no newer build has written it: %w", dir, id.Format, currentFormat, formatName, ErrNewerFormat)
	case !whole:
		return nil, fmt.Errorf("store: file %s in folder %s is damaged: it does not match its own checksum; restore it from a copy: %w", formatName, dir, ErrNotAStore)
	}
	return &id, nil
}

func checkNew(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("store: read folder %s: %w", dir, err)
	}
	for _, e := range entries {
		switch e.Name() {
		case lockName, configName, formatName + tempSuffix, "lost+found": // the last one is a new disk's
		default:
			return fmt.Errorf("store: folder %s is not empty and has no %s file (it holds %q), so it is not a store's; choose an empty folder: %w", dir, formatName, e.Name(), ErrNotAStore)
		}
	}
	return nil
}

// replaceFile writes a file whole or not at all: under another name first, then
// renamed.
func replaceFile(path string, data []byte, sync syncer) error {
	temp := path + tempSuffix
	f, err := sync.create(temp)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = sync.file(f)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := sync.rename(temp, path); err != nil {
		return err
	}
	return sync.dir(filepath.Dir(path))
}
