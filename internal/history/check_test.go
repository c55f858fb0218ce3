package history

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sound is a history of two members and four messages, two masters after each other.
func sound() History {
	h := History{{Kind: Run, Text: "a run", Promise: &Promise{Kept: true, Firm: true, Consumed: []string{"g"}, Ordered: []string{"g"}, Master: 7 * time.Second}}}
	h = append(h, Entry{Kind: Elected, Broker: 0, Epoch: 1})
	for i, body := range []string{"a", "b", "c", "d"} {
		epoch, by := int64(1), int64(0)
		if i > 1 {
			epoch, by = 2, 1
		}
		queue, offset, position := i%2, int64(i/2), int64(1+i)
		if i == 2 {
			h = append(h, Entry{Kind: Elected, At: time.Duration(2*i) * time.Second, Broker: 1, Epoch: 2})
		}
		h = append(h, Entry{
			Kind: Send, At: time.Duration(2*i) * time.Second, Until: time.Duration(2*i+1) * time.Second, Who: "p", Body: body,
			Queue: queue, Offset: offset, Position: position, Broker: by, Outcome: Acknowledged,
		})
		h = append(h, Entry{Kind: Got, Who: "g", Body: body, Queue: queue, Offset: offset})
		for id := range int64(2) {
			h = append(h, Entry{Kind: Record, Broker: id, Position: position, Epoch: epoch, Queue: queue, Offset: offset, Body: body, From: by})
		}
	}
	h = append(h, Entry{Kind: Quiet, At: 10 * time.Second, Until: 12 * time.Second})
	for id := range int64(2) {
		h = append(h, Entry{Kind: Member, Broker: id, Offset: 1, Position: 4})
	}
	return h
}

// edit changes the entries of a history that match.
func edit(h History, match func(Entry) bool, change func(*Entry)) History {
	h = slices.Clone(h)
	for i := range h {
		if match(h[i]) {
			change(&h[i])
		}
	}
	return h
}

func without(h History, match func(Entry) bool) History {
	return slices.DeleteFunc(slices.Clone(h), match)
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	require.Empty(t, Check(sound()))
	record := func(id int64, body string) func(Entry) bool {
		return func(e Entry) bool { return e.Kind == Record && (id < 0 || e.Broker == id) && e.Body == body }
	}
	sent := func(body string) func(Entry) bool {
		return func(e Entry) bool { return e.Kind == Send && e.Body == body }
	}
	for name, tc := range map[string]struct {
		h    History
		want string
	}{
		"a message is in no log":                  {without(sound(), record(-1, "d")), "lost"},
		"a message is in one log only":            {without(sound(), record(1, "d")), "lost"},
		"another message has its place":           {edit(sound(), record(-1, "b"), func(e *Entry) { e.Body = "x" }), "lost"},
		"it is at another position":               {edit(sound(), sent("d"), func(e *Entry) { e.Position = 3 }), "moved"},
		"a place is acknowledged twice":           {append(sound(), Entry{Kind: Send, Body: "x", Queue: 1, Position: 9, Outcome: Acknowledged}), "acknowledged twice"},
		"a position is acknowledged twice":        {append(sound(), Entry{Kind: Send, Body: "x", Queue: 1, Offset: 9, Position: 2, Outcome: Acknowledged}), "acknowledged twice"},
		"a queue has a hole":                      {edit(sound(), func(e Entry) bool { return e.Body == "d" }, func(e *Entry) { e.Offset = 2 }), "queue not dense"},
		"a queue has a place twice":               {append(sound(), Entry{Kind: Record, Position: 5, Epoch: 2, Body: "x", From: 1}), "two records at one place"},
		"logs differ":                             {edit(sound(), record(1, "a"), func(e *Entry) { e.From = 7 }), "logs differ"},
		"a log ends early":                        {edit(sound(), func(e Entry) bool { return e.Kind == Member && e.Broker == 1 }, func(e *Entry) { e.Position = 3 }), "logs differ"},
		"epochs go back":                          {edit(sound(), record(-1, "a"), func(e *Entry) { e.Epoch = 2 }), "epochs go back"},
		"two acknowledge in one epoch":            {edit(sound(), sent("b"), func(e *Entry) { e.Broker = 1 }), "two masters"},
		"two are elected for one epoch":           {append(sound(), Entry{Kind: Elected, Broker: 0, Epoch: 2}), "two masters"},
		"a later message comes before an earlier": {edit(sound(), sent("a"), func(e *Entry) { e.At, e.Until = 7500*time.Millisecond, 8*time.Second }), "goes back"},
		"a consumer missed a message":             {without(sound(), func(e Entry) bool { return e.Kind == Got && e.Body == "c" }), "not consumed"},
		"a consumer got a message too early":      {append(sound()[:1:1], append(History{{Kind: Got, Who: "g", Body: "d", Queue: 1, Offset: 1}}, sound()[1:]...)...), "out of order"},
		"a consumer passed over the first":        {without(sound(), func(e Entry) bool { return e.Kind == Got && e.Body == "a" }), "out of order"},
		"a consumer got what is not there":        {append(sound(), Entry{Kind: Got, Who: "g", Body: "x", Offset: 1}), "taken back"},
		"a former master goes on":                 {append(sound(), Entry{Kind: Send, Body: "x", At: 8 * time.Second, Until: 9 * time.Second, Outcome: Acknowledged, NoWait: true}), "former master"},
		"a store is unsound":                      {edit(sound(), func(e Entry) bool { return e.Kind == Member }, func(e *Entry) { e.Text = "a hole" }), "unsound log"},
		"there was no master in time":             {edit(sound(), func(e Entry) bool { return e.Kind == Quiet }, func(e *Entry) { e.Until = 18 * time.Second }), "no master"},
		"there never was a master":                {edit(sound(), func(e Entry) bool { return e.Kind == Quiet }, func(e *Entry) { e.Until = 0 }), "no master"},
		"nobody has a log":                        {sound()[:3], "no logs"},
	} {
		got := Check(tc.h)
		assert.True(t, slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, tc.want+": ") }), "%s: %q", name, got)
	}
}

func TestCheckForgivesWhatWasNotPromised(t *testing.T) {
	// An attempt that failed, or that nobody waited for, may be there or not.
	h := append(sound(), Entry{Kind: Send, Body: "x", Queue: 1, Offset: 1, Position: 4, Outcome: Failed},
		Entry{Kind: Send, Body: "y", Queue: 1, Offset: 1, Position: 4, Outcome: Stored},
		Entry{Kind: Send, Body: "z", Queue: 1, Offset: 1, Position: 4, Outcome: Acknowledged, NoWait: true})
	assert.Empty(t, Check(h))
	// Attempts that overlap are not compared.
	h = edit(sound(), func(e Entry) bool { return e.Kind == Send && e.Body == "a" }, func(e *Entry) { e.Until = 8 * time.Second })
	assert.Empty(t, Check(h))
	// What is delivered again is in order, and groups that are not named need not be.
	h = append(sound(), Entry{Kind: Got, Who: "g", Body: "a"}, Entry{Kind: Got, Who: "g", Body: "c", Offset: 1}, Entry{Kind: Got, Who: "other", Body: "c", Offset: 1})
	assert.Empty(t, Check(h))
	// Without the promise a loss is none.
	h = without(sound(), func(e Entry) bool { return e.Kind == Record && e.Body == "d" })
	h[0].Promise = &Promise{}
	assert.Equal(t, []string{}, append([]string{}, Check(h)...))
}

func TestAHistoryComesBackFromItsFile(t *testing.T) {
	h := sound()
	path, err := h.Save(filepath.Join(t.TempDir(), "new"), "h.jsonl")
	require.NoError(t, err)
	got, err := Load(path)
	require.NoError(t, err)
	assert.Equal(t, h, got)

	for name, text := range map[string]string{"empty": "", "no run": `{"kind":"got","at":1,"queue":0}`, "text": "hello", "unknown": `{"kind":"run","queues":3}`} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := Load(path)
		assert.ErrorIs(t, err, ErrNoHistory, name)
	}
}
