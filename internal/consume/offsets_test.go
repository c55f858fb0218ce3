package consume

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

func TestStartOffsets(t *testing.T) {
	const none = -1
	cases := map[string]struct {
		from      protocol.ConsumeFrom
		committed int64
		min, end  int64
		start     int64
		commits   []int64 // what the broker was told in the instant of the start
	}{
		"last, committed":                     {protocol.ConsumeFromLast, 7, 5, 20, 7, nil},
		"last, committed at 0":                {protocol.ConsumeFromLast, 0, 0, 20, 0, nil},
		"last, nothing committed":             {protocol.ConsumeFromLast, none, 5, 20, 20, []int64{20}},
		"last, a young queue":                 {protocol.ConsumeFromLast, none, 0, 20, 0, nil}, // the broker answers 0
		"last, an empty queue":                {protocol.ConsumeFromLast, none, 0, 0, 0, nil},
		"first, committed":                    {protocol.ConsumeFromFirst, 7, 5, 20, 7, nil},
		"first, nothing committed":            {protocol.ConsumeFromFirst, none, 5, 20, 5, []int64{5}},
		"first, a young queue":                {protocol.ConsumeFromFirst, none, 0, 20, 0, nil},
		"last, everything was deleted":        {protocol.ConsumeFromLast, none, 20, 20, 20, []int64{20}},
		"committed below the queue's minimum": {protocol.ConsumeFromLast, 2, 5, 20, 2, []int64{5}}, // moved by its first pull
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.topic(testTopic, "a", 1)
				q := queueOf("a", 0)
				w.brokers["a"].queues[q].min = c.min
				w.send(q, numbered(int(c.min), int(c.end))...)
				if c.committed != none {
					w.brokers["a"].commits[q] = c.committed
				}
				e, _ := w.member("c1", new(inbox), func(cfg *Config) { cfg.From = c.from })
				require.NoError(t, e.Start(t.Context()))
				synctest.Wait()
				var commits []int64
				for _, u := range w.updates(q) {
					commits = append(commits, u.offset)
				}
				require.NotEmpty(t, w.pulls(q))
				assert.Equal(t, c.start, w.pulls(q)[0].req.Offset)
				assert.Equal(t, c.commits, commits)
				require.NoError(t, e.Close())
			})
		})
	}
}

func TestStartOffsetsByTime(t *testing.T) {
	const none = -1
	cases := map[string]struct {
		from      time.Duration // since the store time of the first message; one follows each second
		committed int64
		min, end  int64
		start     int64
		commits   []int64 // what the broker was told in the instant of the start
	}{
		"committed":                   {5 * time.Second, 7, 5, 20, 7, nil},
		"committed at 0":              {5 * time.Second, 0, 0, 20, 0, nil},
		"between":                     {4500 * time.Millisecond, none, 5, 20, 10, []int64{10}},
		"at one":                      {4 * time.Second, none, 5, 20, 9, []int64{9}},
		"a young queue":               {4 * time.Second, none, 0, 20, 4, []int64{4}},
		"before all":                  {-time.Hour, none, 5, 20, 5, []int64{5}},
		"before all, a young queue":   {-time.Hour, none, 0, 20, 0, []int64{0}},
		"after all":                   {time.Hour, none, 5, 20, 20, []int64{20}},
		"an empty queue":              {0, none, 0, 0, 0, []int64{0}},
		"everything was deleted":      {0, none, 20, 20, 20, []int64{20}},
		"in the future, an empty one": {1000 * time.Hour, none, 0, 0, 0, []int64{0}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.topic(testTopic, "a", 1)
				q := queueOf("a", 0)
				w.brokers["a"].queues[q].min = c.min
				first := time.Now()
				for _, body := range numbered(int(c.min), int(c.end)) {
					w.send(q, body)
					time.Sleep(time.Second)
				}
				if c.committed != none {
					w.brokers["a"].commits[q] = c.committed
				}
				e, _ := w.member("c1", new(inbox), func(cfg *Config) {
					cfg.From, cfg.FromTime = protocol.ConsumeFromTime, first.Add(c.from)
				})
				require.NoError(t, e.Start(t.Context()))
				synctest.Wait()
				var commits []int64
				for _, u := range w.updates(q) {
					commits = append(commits, u.offset)
				}
				require.NotEmpty(t, w.pulls(q))
				assert.Equal(t, c.start, w.pulls(q)[0].req.Offset)
				assert.Equal(t, c.commits, commits)
				require.NoError(t, e.Close())
			})
		})
	}
}

// A member that takes over a queue goes on where the first one started, also
// when nothing but the start was committed and the time is still to come.
func TestNothingSentAfterStartIsSkippedWhileMembersWithAFutureTimeJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 4)
		in := new(inbox)
		var engines []*Engine
		var sent []string
		future := time.Now().Add(time.Hour)
		for i := range 4 {
			e, _ := w.member(string(rune('z'-i)), in, func(cfg *Config) { cfg.From, cfg.FromTime = protocol.ConsumeFromTime, future })
			require.NoError(t, e.Start(t.Context()))
			engines = append(engines, e)
			for n := range 4 {
				body := numbered(i*10+n, i*10+n+1)
				w.send(queueOf("a", n), body...)
				sent = append(sent, body...)
			}
		}
		time.Sleep(time.Minute)
		got := in.bodies()
		for _, b := range sent {
			assert.Contains(t, got, b)
		}
		for _, e := range engines {
			require.NoError(t, e.Close())
		}
	})
}

// A queue that appears after Start may hold messages from before it, of a
// broker that was away, and messages from after it.
func TestAQueueThatAppearsLaterStartsAtTheEarlierOfTimeAndStart(t *testing.T) {
	for name, from := range map[string]time.Duration{"past": 0, "future": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				w.topic(testTopic, "a", 1)
				late := queueOf("b", 0)
				w.brokers["b"].queues[late] = new(fakeQueue)
				w.send(late, "old")
				time.Sleep(time.Second)
				in := new(inbox)
				at := time.Now().Add(from)
				e, c := w.member("c1", in, func(cfg *Config) { cfg.From, cfg.FromTime = protocol.ConsumeFromTime, at })
				start(t, e)
				time.Sleep(time.Second)
				w.send(late, "new")
				w.topic(testTopic, "b", 1)
				_, _, err := c.Refresh(t.Context(), testTopic)
				require.NoError(t, err)
				time.Sleep(time.Minute)
				assert.Equal(t, []string{"new"}, in.bodies())
			})
		})
	}
}

func TestOffsetsAreCommittedEveryOffsetPersistWhenTheyChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 2)
		e, _ := w.member("c1", &inbox{work: time.Millisecond}, nil) // done after the next pull has begun, which would carry the offset
		began := time.Now()
		start(t, e)
		q := queueOf("a", 0)
		time.Sleep(time.Second)
		w.send(q, numbered(0, 3)...)
		time.Sleep(4*time.Second - 1)
		synctest.Wait()
		assert.Equal(t, int64(-1), w.committed(q), "nothing before the first OffsetPersist")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Equal(t, []update{{began.Add(5 * time.Second), q, 3}}, w.updates(q))
		assert.Equal(t, int64(0), w.committed(queueOf("a", 1)), "where it starts")
		time.Sleep(6 * time.Second)
		w.send(q, "m3")
		time.Sleep(time.Minute)
		assert.Equal(t, []update{
			{began.Add(5 * time.Second), q, 3},
			{began.Add(15 * time.Second), q, 4},
			// The pull that carried 3 and was held from 11 s to 26 s may have been
			// served after the commit of 4, as far as the client can tell.
			{began.Add(30 * time.Second), q, 4},
		}, w.updates(q))
	})
}

func TestFailedCommitIsRepeatedAtTheNextTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.topic(testTopic, "a", 1)
		w.topic(testTopic, "b", 1)
		log := new(lines)
		e, _ := w.member("c1", new(inbox), func(c *Config) { c.Logger = log.logger() })
		start(t, e)
		w.send(queueOf("a", 0), "x")
		w.send(queueOf("b", 0), "y")
		synctest.Wait()
		w.change(func() { w.brokers["a"].silent = true })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Equal(t, int64(1), w.committed(queueOf("b", 0)), "the silent broker delays its own queues only")
		time.Sleep(4 * time.Second)
		w.change(func() { w.brokers["a"].silent = false })
		time.Sleep(6 * time.Second)
		synctest.Wait()
		assert.Equal(t, int64(1), w.committed(queueOf("a", 0)))
		assert.Equal(t, 1, countLines(log, "offsets not committed"))
	})
}

func TestOffsetsOfADeletedTopicAreOneWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		log := new(lines)
		e, _ := w.member("c1", new(inbox), func(c *Config) { c.Logger = log.logger() })
		start(t, e)
		for i := 1; i <= 2; i++ {
			w.change(func() { w.brokers["a"].refuse = protocol.Errorf(protocol.TopicNotExist, "topic is deleted") })
			w.send(queueOf("a", 0), "x")
			time.Sleep(time.Hour)
			assert.Equal(t, i, countLines(log, "offsets not committed"), "once, until it changes")
			w.change(func() { w.brokers["a"].refuse = nil })
			time.Sleep(time.Minute)
			assert.EqualValues(t, i, w.committed(queueOf("a", 0)))
		}
	})
}

func TestCommitOfAnOlderPullIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		e, _ := w.member("c1", &inbox{work: time.Second}, nil)
		start(t, e)
		w.send(q, "x")
		time.Sleep(2 * time.Second)
		w.send(q, "y") // its pull is answered; the next one carries 1 and is held
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Equal(t, int64(2), w.committed(q), "at 5 s")
		w.change(func() { w.brokers["a"].commits[q] = 1 }) // as if that pull had been served after the commit
		w.send(q, "z")                                     // ends it
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Equal(t, int64(3), w.committed(q))
	})
}

func TestNothingSentAfterStartIsSkippedWhileMembersJoin(t *testing.T) {
	// One member after the other joins a new group on queues whose first
	// messages are gone, so that no broker answers 0 for them; messages are sent
	// all the time from the first Start's return on.
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 4)
		in := new(inbox)
		for i := range 4 {
			w.brokers["a"].queues[queueOf("a", i)].min = 100
			w.send(queueOf("a", i), "before the group")
		}
		var engines []*Engine
		var sent []string
		for i := range 4 {
			e, _ := w.member(string(rune('z'-i)), in, nil) // each new one sorts first
			require.NoError(t, e.Start(t.Context()))
			engines = append(engines, e)
			for n := range 4 {
				body := numbered(i*10+n, i*10+n+1)
				w.send(queueOf("a", n), body...)
				sent = append(sent, body...)
			}
		}
		time.Sleep(time.Minute)
		got := make(map[string]bool)
		for _, b := range in.bodies() {
			got[b] = true
		}
		for _, b := range sent {
			assert.True(t, got[b], "%s was skipped", b)
		}
		assert.False(t, got["before the group"])
		for _, e := range engines {
			require.NoError(t, e.Close())
		}
	})
}
