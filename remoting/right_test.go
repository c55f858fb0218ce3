package remoting

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// prompt has a connection make so many requests that what comes next is served by
// who reads.
func prompt(t *testing.T, conn net.Conn) {
	t.Helper()
	for range hereRest {
		answerOf(t, conn, getMinOffset().request(&protocol.GetMinOffsetRequest{Topic: "T"}))
	}
}

// answerOf is the answer to a request.
func answerOf(t *testing.T, conn net.Conn, f *Frame) *Frame {
	t.Helper()
	write(t, conn, f)
	answer, err := Read(conn)
	require.NoError(t, err)
	return answer
}

func TestARequestThatBlocksHoldsUpItsConnectionForAnInstantOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		var closed atomic.Bool
		b := blocking(&running)
		b.close = func() { closed.Store(true) }
		lis, raw := limited(t, b, func(*limits) {})
		conn := raw()
		prompt(t, conn)
		start := time.Now()
		blocks := getMaxOffset().request(&protocol.GetMaxOffsetRequest{Topic: "T"})
		quick := getMinOffset().request(&protocol.GetMinOffsetRequest{Topic: "T"})
		quick.Opaque = 77
		write(t, conn, blocks, quick, blocks)
		f, err := Read(conn)
		require.NoError(t, err)
		assert.EqualValues(t, 77, f.Opaque)
		synctest.Wait()
		assert.EqualValues(t, 2, running.Load(), "as long as one blocks the others are served side by side")
		assert.Equal(t, overdue, time.Since(start))
		require.NoError(t, conn.Close())
		synctest.Wait()
		assert.True(t, closed.Load(), "they do not hide the end")
		require.NoError(t, lis.Close())
		assert.Zero(t, running.Load())
	})
}

func TestTheEndOfAConnectionIsNoticedWhileARequestBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Time, 1)
		b := &fakeBroker{maximum: func(context.Context, *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
			time.Sleep(time.Hour)
			return &protocol.GetMaxOffsetResponse{}, nil
		}, pull: func(ctx context.Context, _ *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
			<-ctx.Done() // of the connection
			ended <- time.Now()
			return nil, ctx.Err()
		}}
		lis, raw := limited(t, b, func(*limits) {})
		conn := raw()
		prompt(t, conn)
		write(t, conn, pullMessage().request(&protocol.PullMessageRequest{Group: "G", Topic: "T"}), getMaxOffset().request(&protocol.GetMaxOffsetRequest{Topic: "T"}))
		synctest.Wait()
		start := time.Now()
		require.NoError(t, conn.Close())
		assert.Equal(t, overdue, (<-ended).Sub(start))
		require.NoError(t, lis.Close())
		assert.Equal(t, time.Hour, time.Since(start), "Close waits for handlers")
	})
}

func TestAServerThatClosesDoesNotWaitForWhoReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		lis, raw := limited(t, blocking(&running), func(*limits) {})
		conn := raw()
		prompt(t, conn)
		write(t, conn, getMaxOffset().request(&protocol.GetMaxOffsetRequest{Topic: "T"}))
		synctest.Wait()
		require.EqualValues(t, 1, running.Load())
		start := time.Now()
		require.NoError(t, lis.Close())
		assert.Zero(t, time.Since(start))
		assert.Zero(t, running.Load())
		require.NoError(t, conn.Close())
	})
}

// A goroutine that serves is one that reads: no two requests overlap.
func TestQuickRequestsAreServedByWhoReadsAndSlowOnesSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var takes atomic.Int64
		on := make(chan string, 1000)
		lis, raw := limited(t, &fakeBroker{maximum: func(context.Context, *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
			on <- goroutine()
			time.Sleep(time.Duration(takes.Load()))
			return &protocol.GetMaxOffsetResponse{}, nil
		}}, func(*limits) {})
		conn := raw()
		prompt(t, conn)
		request := getMaxOffset().request(&protocol.GetMaxOffsetRequest{Topic: "T"})
		many := func() (took time.Duration, goroutines int) {
			start, different := time.Now(), make(map[string]bool)
			write(t, conn, manyOf(request, 40)...)
			for range 40 {
				f, err := Read(conn)
				require.NoError(t, err)
				require.EqualValues(t, protocol.Success, f.Code)
				different[<-on] = true
			}
			return time.Since(start), len(different)
		}
		_, goroutines := many()
		assert.Equal(t, 1, goroutines)

		takes.Store(int64(400 * time.Microsecond)) // a flush, say
		took, _ := many()
		slow := int(hereMost/(400*time.Microsecond-hereUsual)) + 1
		assert.Equal(t, time.Duration(slow+1)*400*time.Microsecond, took, "the first ones in turn, the others side by side")
		took, goroutines = many()
		assert.Equal(t, 400*time.Microsecond, took)
		assert.Equal(t, 40, goroutines)
		require.NoError(t, errors.Join(conn.Close(), lis.Close()))
	})
}

func TestWhoWasSlowIsTriedAgainEachTimeLater(t *testing.T) {
	h := newHere()
	var gaps []int
	gap := 0
	for len(gaps) < 4 {
		if gap++; h.may() {
			gaps = append(gaps, gap-1)
			for gap = 0; h.rest == 0; {
				h.took(overdue)
			}
		}
	}
	assert.Equal(t, []int{hereRest - 1, 2*hereRest - 1, 4*hereRest - 1, 8*hereRest - 1}, gaps)
	for range 4 * 16 * hereRest {
		h.rest = 0
		h.took(hereUsual)
	}
	assert.Equal(t, hereRest, h.again, "what was long ago does not count")
	for range 100 {
		for h.rest = 0; h.rest == 0; {
			h.took(time.Hour)
		}
	}
	assert.Equal(t, hereLongest, h.rest)
}

// soonAsked is a client that reads by itself: its caller was alone, and was answered
// soon, often enough.
func soonAsked(t *testing.T, b *fakeBroker, peer protocol.Peer) (*pair, *link) {
	t.Helper()
	p := newPair(t, b, peer)
	for range readAlone + 2 {
		require.NoError(t, ask(t, p.conn))
	}
	synctest.Wait()
	l := p.conn.(brokerClient).link
	require.Equal(t, rightFree, l.right.state.Load())
	return p, l
}

func TestACallerThatIsAloneReadsItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := soonAsked(t, &fakeBroker{}, nil)
		time.Sleep(overdue)
		synctest.Wait()
		assert.Equal(t, rightHeld, l.right.state.Load(), "nobody asked for a while: the link reads")
		p.close(t)
	})
}

func TestACallerThatReadsGivesUpInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan struct{}, 1)
		p, l := soonAsked(t, &fakeBroker{maximum: func(ctx context.Context, _ *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
			asked <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := p.conn.GetMaxOffset(ctx, &protocol.GetMaxOffsetRequest{Topic: "T"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, rightHeld, l.right.state.Load())

		p.close(t)
		p, _ = soonAsked(t, p.broker, nil)
		cancelled, stop := context.WithCancel(t.Context())
		go func() {
			<-asked
			<-asked
			stop()
		}()
		start = time.Now()
		_, err = p.conn.GetMaxOffset(cancelled, &protocol.GetMaxOffsetRequest{Topic: "T"})
		require.ErrorIs(t, err, context.Canceled)
		assert.LessOrEqual(t, time.Since(start), overdue)
		p.close(t)
	})
}

func TestACallerThatReadsHandsOverWhatIsNotForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 2 * readBuffer
		client := fakePeer{notices: make(chan string, 1)}
		record := make([]byte, size)
		record[2] = size >> 8
		b := &fakeBroker{pull: func(context.Context, *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
			return &protocol.PullMessageResponse{Records: [][]byte{record}}, nil
		}}
		b.maximum = func(context.Context, *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
			b.session.Peer.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: "G"})
			return &protocol.GetMaxOffsetResponse{Offset: 5}, nil
		}
		p, _ := soonAsked(t, b, client)
		start := time.Now()
		got, err := p.conn.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T"})
		require.NoError(t, err)
		assert.EqualValues(t, 5, got.Offset)
		assert.Equal(t, "G", <-client.notices)
		p.close(t)

		p, _ = soonAsked(t, b, client)
		pulled, err := p.conn.PullMessage(t.Context(), &protocol.PullMessageRequest{Group: "G", Topic: "T"})
		require.NoError(t, err)
		assert.Equal(t, [][]byte{record}, pulled.Records)
		assert.Zero(t, time.Since(start))
		p.close(t)
	})
}

func TestNoticesArriveAlsoWhenNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fakePeer{notices: make(chan string, 1)}
		p, _ := soonAsked(t, &fakeBroker{}, client)
		start := time.Now()
		p.broker.session.Peer.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: "G"})
		assert.Equal(t, "G", <-client.notices)
		assert.LessOrEqual(t, time.Since(start), overdue)
		p.close(t)
	})
}

func TestAConnectionThatNobodyReadsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // for the other side
		p, l := soonAsked(t, &fakeBroker{}, nil)
		require.NoError(t, p.lis.Close())
		time.Sleep(overdue)
		synctest.Wait()
		assert.False(t, l.alive())
		_, cause := l.why()
		assert.Equal(t, io.EOF, cause)
		require.NoError(t, p.conn.Close())
	})
	synctest.Test(t, func(t *testing.T) { // for this side
		p, l := soonAsked(t, &fakeBroker{}, nil)
		start := time.Now()
		require.NoError(t, p.conn.Close())
		assert.Zero(t, time.Since(start))
		assert.Equal(t, rightHeld, l.right.state.Load())
		require.NoError(t, p.lis.Close())
	})
}
