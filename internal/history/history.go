package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Kind is what an entry tells of.
type Kind string

// Kinds of entries, and the fields that they use besides Kind and At.
const (
	// Run is the first entry: Text says what ran, Promise what it has to keep.
	Run Kind = "run"
	// Send is one attempt to send a message: Who, Body, Queue, Until, NoWait, Outcome; of
	// one that was answered with a place also Offset, Position and Broker.
	Send Kind = "send"
	// Got is a message that a consumer has got: Who (its group), Body, Queue, Offset.
	Got Kind = "got"
	// Elected: Broker says that it is master under Epoch.
	Elected Kind = "elected"
	// Fault is something that was done to the cluster: Text.
	Fault Kind = "fault"
	// Quiet: everything runs and all links are whole from here on. Until is when the
	// first message was acknowledged after that.
	Quiet Kind = "quiet"
	// Member is a member in the end: Broker, Offset (the first position of its log),
	// Position (the last one), Text (what its own check says, "" for nothing).
	Member Kind = "member"
	// Record is a message in the log of a member in the end: Broker, Position, Epoch,
	// Queue, Offset, Body, and From, who has appended it. Positions without a message
	// have none.
	Record Kind = "record"
)

// Outcome is how an attempt to send ended.
type Outcome string

const (
	// Acknowledged as the configuration promises it.
	Acknowledged Outcome = "ok"
	// Stored at a place, but not acknowledged as promised.
	Stored Outcome = "stored"
	// Failed: the message may be there or not.
	Failed Outcome = "failed"
)

// Promise is what a run has to keep. Its zero value is what holds for every run.
type Promise struct {
	// Kept: what is acknowledged stays, in every log.
	Kept bool `json:"kept,omitempty"`
	// Firm: what a consumer has got stays, too.
	Firm bool `json:"firm,omitempty"`
	// Consumed: each message in the log in the end was got by each of these groups.
	Consumed []string `json:"consumed,omitempty"`
	// Ordered: these groups got each queue in order: a message again, perhaps, but none
	// for the first time before the one in front of it.
	Ordered []string `json:"ordered,omitempty"`
	// Master bounds the time from quiet to the first acknowledgement; 0: no bound.
	Master time.Duration `json:"master,omitempty"`
}

// Entry is one line of a history. Times count from its beginning.
type Entry struct {
	Kind     Kind          `json:"kind"`
	At       time.Duration `json:"at"`
	Until    time.Duration `json:"until,omitempty"`
	Who      string        `json:"who,omitempty"`
	Body     string        `json:"body,omitempty"`
	Queue    int           `json:"queue"`
	Offset   int64         `json:"offset,omitempty"`
	Position int64         `json:"position,omitempty"`
	Epoch    int64         `json:"epoch,omitempty"`
	Broker   int64         `json:"broker,omitempty"`
	From     int64         `json:"from,omitempty"`
	NoWait   bool          `json:"noWait,omitempty"`
	Outcome  Outcome       `json:"outcome,omitempty"`
	Text     string        `json:"text,omitempty"`
	Promise  *Promise      `json:"promise,omitempty"`
}

// History is what happened, in any order but for Run, which is first, and what one group
// got of one queue.
type History []Entry

// ErrNoHistory means that a file holds something else.
var ErrNoHistory = errors.New("not a history")

// Save writes a history to a new file in a folder, one JSON object a line, and returns
// its path.
func (h History) Save(dir, name string) (path string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path = filepath.Join(dir, name)
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	for _, e := range h {
		if err := enc.Encode(e); err != nil {
			return path, err
		}
	}
	return path, w.Flush()
}

// Load reads what Save has written. Errors: ErrNoHistory, those of the file.
func Load(path string) (History, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	var h History
	dec := json.NewDecoder(bufio.NewReader(f))
	dec.DisallowUnknownFields()
	for {
		var e Entry
		switch err := dec.Decode(&e); {
		case err == io.EOF && len(h) > 0 && h[0].Kind == Run && h[0].Promise != nil:
			return h, nil
		case err == io.EOF:
			return nil, fmt.Errorf("%s does not begin with a run: %w", path, ErrNoHistory)
		case err != nil:
			return nil, fmt.Errorf("%s, entry %d: %w: %w", path, len(h)+1, ErrNoHistory, err)
		}
		h = append(h, e)
	}
}
