package store

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever a file holds, a survey of it ends, and what a salvage makes of it is
// a whole file.
func FuzzSurveyAndRewrite(f *testing.F) {
	const base = 7
	whole := appendHeader(nil, fileHeader{format: currentFormat, base: base, bytes: 100, created: 1}, base-1, 0, false)
	for pos := int64(base); pos < base+4; pos++ {
		whole = appendStored(whole, sealed(f, "body", pos, base-1))
	}
	l := lostRecord{position: base + 4, known: true, key: QueueID{"T", 0}, offset: 9}
	rec := l.appendTo(make([]byte, headroom), l.size())
	whole = appendStored(whole, sealEntry(rec, headroom, l.size(), l.position, 3))
	f.Add(whole, uint8(0))
	f.Add(whole[:200], uint8(9))
	f.Add(whole[60:], uint8(3))
	for _, at := range []int{3, 40, 100, 180, 300} {
		damaged := append([]byte(nil), whole...)
		copy(damaged[at:], make([]byte, 30))
		f.Add(damaged, uint8(5))
	}
	f.Fuzz(func(t *testing.T, data []byte, more uint8) {
		path := filepath.Join(quickDir(t), "segment")
		require.NoError(t, os.WriteFile(path, data, 0o640))
		s := &survey{first: base}
		s.queues.trimmed = true
		file := surveyFile(data, path, base, math.MaxInt64, s)
		file.size = int64(len(data))
		require.LessOrEqual(t, file.tail, len(data))
		at := 0
		for _, h := range file.holes {
			require.LessOrEqual(t, at, h.from)
			require.Less(t, h.from, h.to)
			require.LessOrEqual(t, h.first, h.next)
			at = h.to
		}
		require.LessOrEqual(t, at, file.tail)
		s.files = []surveyedFile{file}
		s.synced = max(s.synced, file.next-1+int64(more)) // so many are missing at the end
		if s.contradiction() != nil {
			return
		}
		seen := int64(base)
		w := rewriter{survey: s, emit: func(c fileChange, content []byte) error {
			if content == nil {
				return nil
			}
			require.Equal(t, seen, c.base)
			seen = c.last + 1
			return verifyFile(content, path, c.base, c.last)
		}}
		require.NoError(t, w.run())
	})
}
