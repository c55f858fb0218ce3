package store

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheckFindsEveryKindOfContradiction(t *testing.T) {
	for name, row := range map[string]struct {
		spoil func(s *Store, q *queue)
		says  string
	}{
		"unit of another record": {func(s *Store, q *queue) { unit{position: 1, size: 1}.appendTo(q.tail[:2*unitSize]) }, "offset 2: the unit says position 1"},
		"missing unit":           {func(s *Store, q *queue) { q.tail = q.tail[:len(q.tail)-unitSize] }, "has no unit at offset 9"},
		"unit too many":          {func(s *Store, q *queue) { q.tail = append(q.tail, q.tail[:unitSize]...) }, "offset 10: the unit points at position 1"},
		"missing queue":          {func(s *Store, q *queue) { delete(s.queues.byKey, q.key); s.queues.list = s.queues.list[1:] }, "not in the queue table"},
		"queue too many":         {func(s *Store, q *queue) { x := s.queues.ensure("X", 3); x.tail = append(x.tail, q.tail...) }, `topic "X" queue 3 offset 0`},
		"damaged record":         {func(s *Store, q *queue) { flip(t, lastSegment(t, s.cfg.Dir), 300) }, "fails its checksum"},
	} {
		s := mustOpen(t, testConfig(t))
		put(t, s, "T", 0, numbered("m", 10)...)
		require.NoError(t, s.Check(t.Context()))
		row.spoil(s, s.queues.get(QueueID{"T", 0}))
		err := s.Check(t.Context())
		require.ErrorIs(t, err, ErrDamaged, name)
		assert.Contains(t, err.Error(), row.says, name)
		require.NoError(t, s.Kill())
	}
}

func TestCheckReportsABoundedNumberOfProblems(t *testing.T) {
	s := mustOpen(t, testConfig(t))
	put(t, s, "T", 0, numbered("m", 100)...)
	q := s.queues.get(QueueID{"T", 0})
	clear(q.tail)
	err := s.Check(t.Context())
	var joined interface{ Unwrap() []error }
	require.True(t, errors.As(err, &joined))
	assert.LessOrEqual(t, len(err.Error()), 200*maxProblems)
	require.NoError(t, s.Kill())
}

func TestCheckEndsWithItsContext(t *testing.T) {
	s := mustOpen(t, testConfig(t))
	put(t, s, "T", 0, "m")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Check(ctx), context.Canceled)
}

func TestCheckIsRightBesideAppends(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.FileSize = 32 << 10
	s := mustOpen(t, cfg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		appendConcurrently(t, s, 4, 200, 2)
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		require.NoError(t, s.Check(t.Context()))
	}
}
