package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/examples/internal/walk"
)

// facts are what the story tells, at whatever speed.
func facts() []string {
	return []string{
		"broker-a/0 is killed", "is elected: epoch 2", "ok: broker-a had another master after ",
		"ok: the former master is a slave, and in sync",
		"ok: broker-b had another master after ", "and none was acknowledged; the last time she heard:",
		"cuts its log off behind position", "ok: dora's sends are acknowledged again",
		"ok: broker-a/0 is master again", "ok: everything acknowledged was consumed: lost 0",
		"ok: the logs of the members of each group end at the same position, under the same epoch",
		"8. On one time line",
	}
}

func TestTheStoryIsTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // RocketMQ's own intervals, in virtual time
		file := filepath.Join(t.TempDir(), "chart.svg")
		var out bytes.Buffer
		err := walk.Run(t.Context(), program(), []string{"-speed", "1", "-svg", file}, strings.NewReader(""), &out)
		require.NoError(t, err, "%s", out.String())
		for _, fact := range facts() {
			assert.Contains(t, out.String(), fact)
		}
		assert.NotContains(t, out.String(), "too busy", "virtual time is as exact as it gets")
		drawn(t, file)
	})
}

// drawn looks at the chart.
func drawn(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	count := make(map[string]int)
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err, "well-formed XML")
		if e, ok := token.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if a.Name.Local == "class" {
					count[a.Value]++
				}
			}
		}
	}
	assert.Equal(t, 2*members+2, count["lane"], "each member, and what each group acknowledged")
	assert.GreaterOrEqual(t, count["window"], 2*members+6)
	assert.Greater(t, count["bar"], 300)
	assert.Equal(t, 7, count["moment"], "kill, elected, back, cut, elected, healed, chosen")
}

func TestTheStoryIsTrueInRealTime(t *testing.T) {
	once := program()
	once.Run = tell // not again at half the speed
	var out bytes.Buffer
	err := walk.Run(t.Context(), once, nil, strings.NewReader(""), &out)
	if errors.Is(err, errStutter) {
		t.Skip(err)
	}
	require.NoError(t, err, "%s", out.String())
	for _, fact := range facts() {
		assert.Contains(t, out.String(), fact)
	}
}

func TestAnAccountKnowsWhatIsLost(t *testing.T) {
	a := newAccount(walk.Clock{Begin: time.Now(), Speed: 1}, walk.NewLog())
	a.sends = []send{{message: "anna 1", group: groupA}, {message: "anna 2", group: groupB}, {message: "anna 3", err: io.EOF}, {message: "anna 4", err: io.EOF}}
	a.consumed = map[string]int{"anna 1": 2, "anna 3": 1, "bert 1": 1}
	assert.Equal(t, []string{"anna 2"}, a.lost())
	assert.Equal(t, balance{sent: 4, acknowledged: 2, open: 2, survived: 1, consumed: 3, twice: 1, never: 1, refused: 2}, a.balance())
	assert.Equal(t, io.EOF, a.failure())
}
