package walk

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

func TestStoryIsToldInStepsAndLinesOfOneWidth(t *testing.T) {
	var out bytes.Buffer
	s := newStory(&out, 60)
	s.Step("First")
	s.Say("%s", strings.Repeat("word ", 60))
	s.At(90*time.Second, "a minute and a half")
	s.Checked("%d is %d", 1, 1)
	s.Line("")
	text := out.String()
	assert.Contains(t, text, "\n1. First\n\n   word word")
	assert.Contains(t, text, "     90.0 s   a minute and a half\n   ok: 1 is 1\n\n")
	for line := range strings.Lines(text) {
		assert.LessOrEqual(t, len(line)-1, width)
	}
	s.Again(30)
	s.Step("Again")
	assert.Contains(t, out.String(), "\n1. Again\n")
	assert.InDelta(t, 30, s.Clock.Speed, 0)
}

func TestStepWaitsForEnterAndForNobodyAtTheEndOfTheInput(t *testing.T) {
	var out bytes.Buffer
	err := Run(t.Context(), program(func(_ context.Context, s *Story, _ Options) error {
		for _, title := range []string{"one", "two", "three", "four"} {
			s.Step(title)
		}
		return nil
	}), []string{"-step"}, strings.NewReader("\n"), &out)
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(out.String(), "Enter"), "before two, and before three, where the input ends")
	assert.Contains(t, out.String(), "4. four")
}

func TestClockRunsFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Clock{Begin: time.Now(), Speed: 60}
		assert.Equal(t, 2*time.Second, c.Real(2*time.Minute))
		assert.Equal(t, 2*time.Minute, c.Cluster(2*time.Second))
		require.NoError(t, c.Until(t.Context(), time.Minute))
		assert.Equal(t, time.Minute, c.Now())
		assert.Equal(t, time.Minute, c.At(c.Begin.Add(time.Second)))
		require.NoError(t, c.Until(t.Context(), time.Second), "what is past takes no time")
		assert.Equal(t, time.Minute, c.Now())
		assert.Equal(t, 2*time.Second, c.Timings().ClientExpire)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, c.Until(ctx, time.Hour), context.Canceled)
	})
}

func TestLogWakesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLog()
		done := make(chan error, 1)
		go func() {
			done <- l.Await(t.Context(), time.Minute, "two events", func() bool { return l.Len() == 2 })
		}()
		for range 2 {
			synctest.Wait()
			assert.Empty(t, done)
			l.Record(pocketmq.RouteChanged{})
		}
		assert.NoError(t, <-done)
		assert.Len(t, l.Since(1), 1)

		looked := 0
		begin := time.Now()
		err := l.Await(t.Context(), time.Second, "the moon falls", func() bool {
			if looked++; looked == 1 {
				l.Wake()
			}
			return false
		})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "the moon falls: did not happen within 1s")
		assert.Equal(t, 2, looked, "at first, and when it was woken")
		assert.Equal(t, time.Second, time.Since(begin))
	})
}
