package rmqtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// offsets are the folders where broadcasting consumers of this process keep what they
// have consumed.
var offsets = offsetFolders{root: offsetRoot()}

// offsetRoot is what the official client finds when the process starts.
func offsetRoot() string {
	if dir := os.Getenv("rocketmq.client.localOffsetStoreDir"); dir != "" {
		return dir
	}
	return filepath.Join(os.Getenv("HOME"), ".rocketmq_client_go")
}

// offsetFolders removes the folders that the official client makes, and no others: a
// folder or link that was there before the first of the consumers that use it stays.
type offsetFolders struct {
	root string

	mu   sync.Mutex     // guards the field below, and folders against one another; leaf
	uses map[string]int // consumers of each folder that was not there before them
}

// use begins to use the folder of a consumer, and those above it that are not there.
// What it returns ends that, once.
func (f *offsetFolders) use(folder string) (end func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.uses == nil {
		f.uses = make(map[string]int)
	}
	var used []string // from below
	for {
		if f.uses[folder] == 0 {
			if _, err := os.Lstat(folder); !errors.Is(err, fs.ErrNotExist) {
				break
			}
		}
		f.uses[folder]++
		used = append(used, folder)
		folder = filepath.Dir(folder)
	}
	return func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		var err error
		for i, folder := range used {
			f.uses[folder]--
			if f.uses[folder] > 0 {
				continue
			}
			delete(f.uses, folder)
			if i == 0 {
				err = os.RemoveAll(folder) // the consumer's own
			} else {
				_ = os.Remove(folder) // fails when somebody else has put something there, which is right
			}
		}
		return err
	}
}
