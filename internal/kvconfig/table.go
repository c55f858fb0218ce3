package kvconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/pocketmq/pocketmq/internal/statefile"
)

// MaxBytes bounds the names and values of all entries together, each entry and
// each namespace counted as 64 bytes more. It is small enough for any namespace
// to fit into one answer, however much of it has to be escaped.
const MaxBytes = 2 << 20

// entryBytes is what an entry or a namespace counts beside its texts.
const entryBytes = 64

// Options says where a Table lives.
type Options struct {
	File   string       // state file; "" = memory only
	NoSync bool         // survive a kill of the process but not a loss of power
	Logger *slog.Logger // nil = silent
}

// Table is the KV configuration of one name server. Safe for concurrent use.
// Get and List never wait for a change.
type Table struct {
	file *statefile.File // nil = memory only

	spaces atomic.Pointer[spaces] // written under mu

	mu sync.Mutex // one change at a time; a leaf, held over the file calls of its save
}

// spaces are all entries: namespace -> key -> value. A namespace whose last key
// went stays, empty, as in the reference. Once published nothing of it is
// changed.
type spaces map[string]map[string]string

// contents is the file's content.
type contents struct {
	ConfigTable spaces `json:"configTable"`
}

// Open reads the table, empty when nothing was ever put. A damaged file is
// replaced by the version before it, which is logged: the last change is lost.
// With both versions damaged it is an error that names the files
// (statefile.ErrDamaged). Open writes nothing.
func Open(o Options) (*Table, error) {
	t := &Table{}
	s := make(spaces)
	if o.File != "" {
		t.file = statefile.New(o.File, o.NoSync)
		data, found, err := t.file.Load()
		if err != nil {
			return nil, fmt.Errorf("KV configuration: %w", err)
		}
		if err := t.file.Damaged(); err != nil && o.Logger != nil {
			o.Logger.Warn("KV configuration restored from the backup: the last change of it is lost", "err", err)
		}
		if found {
			if s, err = decode(data); err != nil {
				return nil, fmt.Errorf("KV configuration: %s: %w; put a good copy in its place, or move it away to start without KV configuration", o.File, err)
			}
		}
	}
	t.spaces.Store(&s)
	return t, nil
}

// Get returns a value, false when there is none. It takes no lock.
// Java: KVConfigManager.getKVConfig.
func (t *Table) Get(namespace, key string) (value string, ok bool) {
	value, ok = (*t.spaces.Load())[namespace][key]
	return value, ok
}

// List returns everything in a namespace, for the caller to keep; false when
// nothing was ever put into it. It takes no lock.
// Java: KVConfigManager.getKVListByNamespace.
func (t *Table) List(namespace string) (table map[string]string, ok bool) {
	table, ok = (*t.spaces.Load())[namespace]
	return maps.Clone(table), ok
}

// Put sets a value and reports whether that changed anything. On an error,
// nothing has changed: a name that is empty, a text that is not UTF-8, more than
// MaxBytes of everything, or what the save returned.
// Java: KVConfigManager.putKVConfig. Differs: there a change that could not be
// saved counts until the next start.
func (t *Table) Put(namespace, key, value string) (changed bool, err error) {
	if namespace == "" || key == "" {
		return false, fmt.Errorf("namespace or key is empty: namespace %q, key %q", clip(namespace), clip(key))
	}
	if !utf8.ValidString(namespace) || !utf8.ValidString(key) || !utf8.ValidString(value) {
		return false, fmt.Errorf("namespace %q, key %q: not UTF-8", clip(namespace), clip(key))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := *t.spaces.Load()
	if have, ok := old[namespace][key]; ok && have == value {
		return false, nil
	}
	s := old.with(namespace)
	s[namespace][key] = value
	if size := s.size(); size > MaxBytes && size > old.size() {
		return false, fmt.Errorf("namespace %q, key %q: the KV configuration would have %d bytes, at most %d are allowed; delete what is not needed", clip(namespace), clip(key), size, MaxBytes)
	}
	if err := t.commitLocked(s); err != nil {
		return false, err
	}
	return true, nil
}

// Delete removes a value and reports whether there was one. On an error, what
// the save returned, it is still there. Java: KVConfigManager.deleteKVConfig.
func (t *Table) Delete(namespace, key string) (deleted bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := *t.spaces.Load()
	if _, ok := old[namespace][key]; !ok {
		return false, nil
	}
	s := old.with(namespace)
	delete(s[namespace], key)
	if err := t.commitLocked(s); err != nil {
		return false, err
	}
	return true, nil
}

// commitLocked saves s, and only then lets it be seen.
func (t *Table) commitLocked(s spaces) error {
	if t.file != nil {
		if err := t.file.Save(s.encode()); err != nil {
			return fmt.Errorf("KV configuration: %w", err)
		}
	}
	t.spaces.Store(&s)
	return nil
}

// with returns a copy in which one namespace may be changed.
func (s spaces) with(namespace string) spaces {
	next := maps.Clone(s)
	own := maps.Clone(s[namespace])
	if own == nil {
		own = make(map[string]string)
	}
	next[namespace] = own
	return next
}

// size is what MaxBytes bounds.
func (s spaces) size() (n int) {
	for namespace, table := range s {
		n += len(namespace) + entryBytes
		for key, value := range table {
			n += len(key) + len(value) + entryBytes
		}
	}
	return n
}

func (s spaces) encode() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(contents{s}); err != nil {
		panic(fmt.Sprintf("kvconfig: does not encode: %v", err)) // strings only
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// decode reads what encode wrote.
func decode(data []byte) (spaces, error) {
	var c contents
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, err
	}
	if c.ConfigTable == nil {
		return nil, errors.New("it has no configTable")
	}
	for namespace, table := range c.ConfigTable {
		if table == nil {
			c.ConfigTable[namespace] = make(map[string]string)
		}
	}
	return c.ConfigTable, nil
}

// clip shortens a text of a stranger for an error.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
