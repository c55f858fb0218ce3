package consume

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/pocketmq/pocketmq/internal/statefile"
	"github.com/pocketmq/pocketmq/message"
)

// localOffsets is how far a broadcasting member has come in each queue: nobody
// else knows, so it is kept in a file of the member's own, or in memory only.
// Queues that it does not hold at the moment stay in it. Safe for concurrent
// use. Java: LocalFileOffsetStore. Differs: that one forgets a queue when it is
// dropped, so a broker that was away for a while was read from its end on.
type localOffsets struct {
	path string          // "" = memory only
	file *statefile.File // nil = memory only

	saving sync.Mutex // serialises saves; held over file calls only

	mu      sync.Mutex // guards everything below; a leaf
	offsets map[message.Queue]int64
	changed bool // since the last save
}

// openLocalOffsets reads the file at path, "" = there is none. One that is not
// there is empty.
func openLocalOffsets(path string) (*localOffsets, error) {
	l := &localOffsets{path: path, offsets: make(map[message.Queue]int64)}
	if path == "" {
		return l, nil
	}
	l.file = statefile.New(path, false)
	data, found, err := l.file.Load()
	if errors.Is(err, statefile.ErrDamaged) {
		// RocketMQ's client writes no checksum.
		if raw, rerr := os.ReadFile(path); rerr == nil {
			if offsets, derr := decodeOffsets(raw); derr == nil {
				l.offsets = offsets
				return l, nil
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("offsets of a broadcasting consumer: %w", err)
	}
	if found {
		if l.offsets, err = decodeOffsets(data); err != nil {
			return nil, fmt.Errorf("offsets of a broadcasting consumer: %s: %w; move it away to start without it", path, err)
		}
	}
	return l, nil
}

// get returns how far the member has come in q.
func (l *localOffsets) get(q message.Queue) (offset int64, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	offset, found = l.offsets[q]
	return offset, found
}

// put notes how far the member has come in q; save makes it last.
func (l *localOffsets) put(q message.Queue, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, known := l.offsets[q]; known && old == offset {
		return
	}
	l.offsets[q] = offset
	l.changed = true
}

// save writes the file if something has changed. After an error the next save
// tries again.
func (l *localOffsets) save() error {
	if l.file == nil {
		return nil
	}
	l.saving.Lock()
	defer l.saving.Unlock()
	l.mu.Lock()
	changed, offsets := l.changed, maps.Clone(l.offsets)
	l.changed = false
	l.mu.Unlock()
	if !changed {
		return nil
	}
	if err := l.file.Save(encodeOffsets(offsets)); err != nil {
		l.mu.Lock()
		l.changed = true
		l.mu.Unlock()
		return err
	}
	return nil
}

// wireQueue is a queue as RocketMQ's files and commands have it.
type wireQueue struct {
	BrokerName string `json:"brokerName"`
	QueueID    int    `json:"queueId"`
	Topic      string `json:"topic"`
}

// encodeOffsets returns {"offsetTable":{"{\"brokerName\":...}":12}}, sorted:
// what RocketMQ's Go client writes. Java's has the keys as bare objects, which
// is no JSON.
func encodeOffsets(offsets map[message.Queue]int64) []byte {
	var b bytes.Buffer
	b.WriteString(`{"offsetTable":{`)
	for i, q := range slices.SortedFunc(maps.Keys(offsets), message.Queue.Compare) {
		if i > 0 {
			b.WriteByte(',')
		}
		key := fmt.Sprintf(`{"brokerName":%s,"queueId":%d,"topic":%s}`, quoted(q.BrokerName), q.QueueID, quoted(q.Topic))
		fmt.Fprintf(&b, "\n%s:%d", quoted(key), offsets[q])
	}
	b.WriteString("\n}}\n")
	return b.Bytes()
}

// quoted returns s as a JSON string.
func quoted(s string) []byte {
	text, _ := json.Marshal(s) // a string always marshals
	return text
}

// decodeOffsets reads what encodeOffsets, or RocketMQ's Java client, wrote.
func decodeOffsets(data []byte) (map[message.Queue]int64, error) {
	s := scanner{rest: data}
	offsets := make(map[message.Queue]int64)
	for _, want := range []string{"{", `"offsetTable"`, ":", "{"} {
		if !s.skip(want) {
			return nil, s.unexpected(want)
		}
	}
	for !s.skip("}") {
		if len(offsets) > 0 && !s.skip(",") {
			return nil, s.unexpected(",")
		}
		q, err := s.queue()
		if err != nil {
			return nil, err
		}
		if !s.skip(":") {
			return nil, s.unexpected(":")
		}
		var offset int64
		if err := s.value(&offset); err != nil {
			return nil, err
		}
		if _, twice := offsets[q]; twice || offset < 0 {
			return nil, fmt.Errorf("%v has offset %d, or two of them", q, offset)
		}
		offsets[q] = offset
	}
	if !s.skip("}") {
		return nil, s.unexpected("}")
	}
	if s.blanks(); len(s.rest) > 0 {
		return nil, s.unexpected("the end")
	}
	return offsets, nil
}

// scanner reads JSON whose object keys may be objects.
type scanner struct{ rest []byte }

func (s *scanner) blanks() { s.rest = bytes.TrimLeft(s.rest, " \t\r\n") }

// skip consumes token, if it comes next.
func (s *scanner) skip(token string) bool {
	s.blanks()
	rest, ok := bytes.CutPrefix(s.rest, []byte(token))
	if ok {
		s.rest = rest
	}
	return ok
}

// value decodes the JSON value that comes next.
func (s *scanner) value(v any) error {
	d := json.NewDecoder(bytes.NewReader(s.rest))
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("no table of offsets: %w", err)
	}
	s.rest = s.rest[d.InputOffset():]
	return nil
}

// queue decodes a key: an object, or one within a string.
func (s *scanner) queue() (message.Queue, error) {
	var w wireQueue
	s.blanks()
	var err error
	if bytes.HasPrefix(s.rest, []byte(`"`)) {
		var text string
		if err = s.value(&text); err == nil {
			err = json.Unmarshal([]byte(text), &w)
		}
	} else {
		err = s.value(&w)
	}
	switch {
	case err != nil:
		return message.Queue{}, fmt.Errorf("no table of offsets: a key: %w", err)
	case w.Topic == "" || w.BrokerName == "" || w.QueueID < 0:
		return message.Queue{}, fmt.Errorf("no table of offsets: a key is no queue: %+v", w)
	}
	return message.Queue{Topic: w.Topic, BrokerName: w.BrokerName, QueueID: w.QueueID}, nil
}

func (s *scanner) unexpected(want string) error {
	s.blanks()
	return fmt.Errorf("no table of offsets: %q where %s should come", s.rest[:min(len(s.rest), 20)], want)
}
