package store

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAppendedRecordsAreReadBackInOrderAcrossReopen(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	want := numbered("m", 1000)
	for i, body := range want {
		a := put(t, s, "T", 0, body)
		assert.Equal(t, int64(i), a.QueueOffset)
		assert.Equal(t, int64(i+1), a.Position)
	}
	assertBodies(t, s, "T", 0, want)
	mustClose(t, s)

	s = mustOpen(t, cfg)
	assertBodies(t, s, "T", 0, want)
	assert.Equal(t, int64(1000), put(t, s, "T", 0, "next").QueueOffset)
	mustKill(t, s)
	s = mustOpen(t, cfg)
	assertBodies(t, s, "T", 0, append(want, "next"))
}
