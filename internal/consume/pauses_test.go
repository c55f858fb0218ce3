package consume

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPausesAreSomeQueuesOrAllButSome(t *testing.T) {
	a, b := queueOf("a", 0), queueOf("a", 1)
	var p Pauses
	has := func() [2]bool { return [2]bool{p.Has(a), p.Has(b)} }
	assert.Equal(t, [2]bool{false, false}, has())
	p.Pause(a)
	assert.Equal(t, [2]bool{true, false}, has())
	p.Pause()
	assert.Equal(t, [2]bool{true, true}, has())
	p.Resume(b)
	assert.Equal(t, [2]bool{true, false}, has())
	p.Pause(b)
	assert.Equal(t, [2]bool{true, true}, has())
	p.Resume()
	assert.Equal(t, [2]bool{false, false}, has())
}

func TestAPausedQueueIsNeitherPulledNorHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 2)
		q, other := queueOf("a", 0), queueOf("a", 1)
		in := &inbox{work: time.Second}
		p := new(Pauses)
		e, _ := w.member("c1", in, func(c *Config) { c.Concurrency, c.Pauses = 1, p })
		start(t, e)
		w.send(q, numbered(0, 3)...)
		time.Sleep(1500 * time.Millisecond) // m0 is done, m1 runs, m2 waits
		p.Pause(q)
		e.PausesChanged()
		before := len(w.pulls(q))
		w.send(other, "o")
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"m0", "m1", "o"}, in.bodies(), "what runs goes on, and so do other queues")
		assert.EqualValues(t, 2, w.committed(q))
		w.send(q, "m3")
		time.Sleep(time.Hour)
		assert.LessOrEqual(t, len(w.pulls(q))-before, 1, "the held pull may bring something, no other is sent")
		list := e.Queues()
		assert.True(t, list[0].Paused)
		assert.False(t, list[1].Paused)
		assert.False(t, list[0].Pulling)
		assert.EqualValues(t, 2, list[0].CommitOffset)
		assert.Len(t, e.Assignment(), 2, "it stays this member's")
		p.Resume()
		e.PausesChanged()
		time.Sleep(3 * time.Second)
		assert.Equal(t, []string{"m0", "m1", "m2", "m3", "o"}, in.bodies())
		assert.True(t, e.Queues()[0].Pulling)
	})
}
