package store

import "os"

// syncer is how a store makes things durable: the content of a file, and the
// entries of a folder.
type syncer struct {
	file func(*os.File) error
	dir  func(path string) error
}

// durable asks the operating system.
func durable() syncer { return syncer{file: (*os.File).Sync, dir: syncDir} }

// volatile does nothing, for throwaway stores.
func volatile() syncer {
	return syncer{file: func(*os.File) error { return nil }, dir: func(string) error { return nil }}
}
