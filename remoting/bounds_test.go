package remoting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryConnectionHasPlacesOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		lis, raw := limited(t, blocking(&running), func(l *limits) { l.ownServed, l.served, l.ownHeld, l.held = 1, 3, 2, 4 })
		request := getMaxOffset().request(&protocol.GetMaxOffsetRequest{Topic: "T"})
		pull := pullMessage().request(&protocol.PullMessageRequest{Group: "G", Topic: "T"})
		greedy := raw()
		write(t, greedy, manyOf(request, 10)...)
		synctest.Wait()
		require.EqualValues(t, 1+3, running.Load())
		puller := raw()
		write(t, puller, manyOf(pull, 10)...)
		for range 10 - 2 - 4 {
			_, err := Read(puller)
			require.NoError(t, err)
		}
		synctest.Wait()
		require.EqualValues(t, 4+6, running.Load())

		// Whoever comes now has its own, again and again.
		late := raw()
		for i := range 10 {
			write(t, late, getMinOffset().request(&protocol.GetMinOffsetRequest{Topic: "T", QueueID: i}))
			f, err := Read(late)
			require.NoError(t, err)
			require.EqualValues(t, protocol.Success, f.Code)
		}
		write(t, late, manyOf(pull, 2)...)
		synctest.Wait()
		require.EqualValues(t, 4+6+2, running.Load())
		write(t, late, pull)
		f, err := Read(late)
		require.NoError(t, err)
		assert.EqualValues(t, protocol.SystemBusy, f.Code)
		require.NoError(t, greedy.Close())
		require.NoError(t, errors.Join(lis.Close(), puller.Close(), late.Close()))
		assert.Zero(t, running.Load())
	})
}

func TestAPlaceThatIsGivenBackServesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var running atomic.Int64
		lis, raw := limited(t, &fakeBroker{maximum: func(ctx context.Context, _ *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
			running.Add(1)
			defer running.Add(-1)
			<-release
			return &protocol.GetMaxOffsetResponse{}, nil
		}}, func(l *limits) { l.ownServed, l.served = 1, 1 })
		request := getMaxOffset().request(&protocol.GetMaxOffsetRequest{Topic: "T"})
		first, second := raw(), raw()
		write(t, first, manyOf(request, 5)...)
		synctest.Wait()
		write(t, second, manyOf(request, 5)...)
		synctest.Wait()
		require.EqualValues(t, 3, running.Load(), "one each, and one more")
		for range 10 {
			release <- struct{}{}
			synctest.Wait()
		}
		for _, conn := range []net.Conn{first, second} {
			for range 5 {
				_, err := Read(conn)
				require.NoError(t, err)
			}
			require.NoError(t, conn.Close())
		}
		synctest.Wait()
		assert.Empty(t, lis.served)
		require.NoError(t, lis.Close())
	})
}

func TestTheSlowestReaderGoesWhenTooMuchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := make([]byte, 100<<10)
		record[1], record[2] = 0x01, 0x90
		lis, raw := limited(t, &fakeBroker{pull: func(context.Context, *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
			return &protocol.PullMessageResponse{Records: [][]byte{record}}, nil
		}}, func(l *limits) { l.answers = 1 << 20 })
		pull := pullMessage().request(&protocol.PullMessageRequest{Group: "G", Topic: "T"})
		var conns []net.Conn
		for range 4 { // each less than it all, together more
			conn := raw()
			conns = append(conns, conn)
			write(t, conn, manyOf(pull, 4)...)
			synctest.Wait()
			time.Sleep(time.Second)
		}
		assert.LessOrEqual(t, lis.answers.bytes.Load(), int64(1<<20))
		assert.Len(t, lis.openSessions(), 3, "the first has let its answers wait longest")
		go func() { _, _ = conns[0].Write(make([]byte, 1)) }()
		_, err := conns[0].Read(make([]byte, 10<<20))
		assert.Error(t, err)
		for range 4 {
			f, err := Read(conns[3])
			require.NoError(t, err)
			assert.Len(t, f.Body, len(record))
		}
		for _, conn := range conns {
			require.NoError(t, conn.Close())
		}
		synctest.Wait()
		assert.Zero(t, lis.answers.bytes.Load(), "what was cut off is not counted, and what was written neither")
		require.NoError(t, lis.Close())
	})
}

func TestWhatConnectionsHoldWhenTheyAreQuietIsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := make([]byte, 1<<20)
		record[1] = 0x10
		lis, raw := limited(t, &fakeBroker{pull: func(context.Context, *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
			return &protocol.PullMessageResponse{Records: [][]byte{record}}, nil
		}}, func(*limits) {})
		conn := raw()
		for range 3 {
			write(t, conn, pullMessage().request(&protocol.PullMessageRequest{Group: "G", Topic: "T"}))
			_, err := Read(conn)
			require.NoError(t, err)
		}
		synctest.Wait()
		s := lis.openSessions()[0].link
		assert.LessOrEqual(t, cap(s.out), 64<<10, "buffers of large answers are not kept")
		require.NoError(t, errors.Join(conn.Close(), lis.Close()))
	})
}

func TestOnewayRequestsThatWaitAreBoundedByTheirBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var served atomic.Int64
		lis, raw := limited(t, &fakeBroker{send: func(context.Context, *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			served.Add(1)
			<-release
			return &protocol.SendMessageResponse{}, nil
		}}, func(*limits) {})
		send := sendMessage().request(&protocol.SendMessageRequest{ProducerGroup: "P", Topic: "T", Body: make([]byte, 30<<10), Oneway: true})
		conn := raw()
		var written atomic.Int64
		go func() {
			b, err := send.Append(nil)
			for err == nil && written.Load() < 20 {
				_, err = conn.Write(b)
				written.Add(1)
			}
		}()
		synctest.Wait()
		assert.EqualValues(t, 1, served.Load())
		assert.LessOrEqual(t, written.Load(), int64(4), "two fit, one waits, one is being read")
		close(release)
		synctest.Wait()
		assert.EqualValues(t, 20, served.Load())
		require.NoError(t, errors.Join(conn.Close(), lis.Close()))
	})
}

func TestALargeRequestThatComesSlowlyGivesWay(t *testing.T) {
	large := sendMessage().request(&protocol.SendMessageRequest{ProducerGroup: "P", Topic: "T", Body: make([]byte, 1<<20)})
	wire, err := large.Append(nil)
	require.NoError(t, err)
	serve := func(t *testing.T) (lis *listener[protocol.BrokerConn], raw func() net.Conn, slow net.Conn, gone chan error) {
		b := &fakeBroker{send: func(context.Context, *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			return &protocol.SendMessageResponse{}, nil
		}}
		lis, raw = limited(t, b, func(l *limits) { l.large = 1 << 20 })
		slow, gone = raw(), make(chan error, 1)
		go func() { // a piece and a bit, then a byte a second
			_, err := slow.Write(wire[:piece+100])
			for i := piece + 100; err == nil && i < piece+160; i++ {
				time.Sleep(time.Second)
				_, err = slow.Write(wire[i : i+1])
			}
			gone <- err
		}()
		synctest.Wait()
		time.Sleep(10 * time.Second)
		return lis, raw, slow, gone
	}
	synctest.Test(t, func(t *testing.T) { // as long as nobody waits it may
		lis, _, slow, gone := serve(t)
		assert.NoError(t, <-gone)
		require.NoError(t, errors.Join(slow.Close(), lis.Close()))
	})
	synctest.Test(t, func(t *testing.T) {
		lis, raw, slow, gone := serve(t)
		conn := raw()
		start := time.Now()
		write(t, conn, large)
		_, err := Read(conn)
		require.NoError(t, err)
		assert.LessOrEqual(t, time.Since(start), paceGrace)
		assert.Error(t, <-gone)
		require.NoError(t, errors.Join(conn.Close(), slow.Close(), lis.Close()))
		require.True(t, lis.large.bytes.TryAcquire(1<<20), "all is given back")
	})
	synctest.Test(t, func(t *testing.T) { // a claim alone holds nothing
		lis, raw := limited(t, &fakeBroker{}, func(l *limits) { l.large = 1 << 20 })
		var conns []net.Conn
		for range 100 {
			conn := raw()
			_, err := conn.Write(append([]byte{0, 0xFF, 0xFF, 0xFC}, make([]byte, firstPiece-1)...))
			require.NoError(t, err)
			conns = append(conns, conn)
		}
		synctest.Wait()
		require.True(t, lis.large.bytes.TryAcquire(1<<20))
		lis.large.bytes.Release(1 << 20)
		for _, conn := range conns {
			require.NoError(t, conn.Close())
		}
		require.NoError(t, lis.Close())
	})
}

func TestOneConnectionTooManyEndsOneThatSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis, raw := limited(t, &fakeBroker{}, func(l *limits) { l.conns = 3 })
		request := getMinOffset().request(&protocol.GetMinOffsetRequest{Topic: "T"})
		alive := func(conn net.Conn) error {
			write(t, conn, request)
			_, err := Read(conn)
			return err
		}
		talker := raw()
		require.NoError(t, alive(talker))
		time.Sleep(time.Second)
		silent := raw()
		synctest.Wait()
		time.Sleep(time.Second)
		half := raw()
		write(t, half)
		_, err := half.Write([]byte{0, 0})
		require.NoError(t, err)
		synctest.Wait()

		late := raw()
		require.NoError(t, alive(late), "one more")
		assert.Error(t, alive(silent), "the oldest of those that have said nothing")
		later := raw()
		require.NoError(t, alive(later))
		assert.Error(t, alive(half))
		require.NoError(t, alive(talker))
		assert.Error(t, alive(raw()), "all others have said something, and not long ago")
		for _, conn := range []net.Conn{talker, late, later} {
			require.NoError(t, alive(conn))
			require.NoError(t, conn.Close())
		}
		synctest.Wait()
		assert.Empty(t, lis.openSessions())
		assert.Zero(t, lis.evicted)
		require.NoError(t, errors.Join(lis.Close(), silent.Close(), half.Close()))
	})
}

func TestOneConnectionTooManyEndsTheOneThatWasIdleLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var commits atomic.Int64
		lis, raw := limited(t, &fakeBroker{
			pull: func(ctx context.Context, _ *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
			maximum: func(context.Context, *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
				<-release
				return &protocol.GetMaxOffsetResponse{}, nil
			},
			commit: func(context.Context, *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error) {
				commits.Add(1)
				<-release
				return &protocol.UpdateConsumerOffsetResponse{}, nil
			},
		}, func(l *limits) { l.conns = 7 })
		alive := func(conn net.Conn) error {
			write(t, conn, getMinOffset().request(&protocol.GetMinOffsetRequest{Topic: "T"}))
			_, err := Read(conn)
			return err
		}
		open := func() net.Conn {
			conn := raw()
			require.NoError(t, alive(conn))
			return conn
		}
		// What is not idle, though nothing has come for long.
		registered := open()
		write(t, registered, heartbeat().request(&protocol.HeartbeatRequest{ClientID: "c"}))
		_, err := Read(registered)
		require.NoError(t, err)
		holding, asking, committing, sending := open(), open(), open(), open()
		write(t, holding, pullMessage().request(&protocol.PullMessageRequest{Group: "G", Topic: "T"}))
		write(t, asking, getMaxOffset().request(&protocol.GetMaxOffsetRequest{Topic: "T"}))
		write(t, committing, updateConsumerOffset().request(&protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T", Oneway: true}))
		large, err := sendMessage().request(&protocol.SendMessageRequest{Topic: "T", Body: make([]byte, 2*readBuffer)}).Append(nil)
		require.NoError(t, err)
		_, err = sending.Write(large[:readBuffer])
		require.NoError(t, err)
		synctest.Wait()
		require.EqualValues(t, 1, commits.Load())
		time.Sleep(time.Second)
		first := open()
		time.Sleep(time.Second)
		second := open()
		require.NoError(t, alive(first))
		assert.Error(t, alive(raw()), "all were used just now")
		time.Sleep(evictRest)
		require.NoError(t, alive(first))

		time.Sleep(time.Millisecond)
		third := raw()
		require.NoError(t, alive(third))
		assert.Error(t, alive(second), "it was idle for longest, the first is older")
		silent := raw()
		synctest.Wait()
		assert.Error(t, alive(silent), "all were used just now")
		time.Sleep(evictRest)
		silent = raw()
		synctest.Wait()
		assert.Error(t, alive(first))
		fourth := raw()
		require.NoError(t, alive(fourth))
		assert.Error(t, alive(silent), "whoever has said nothing goes first")

		close(release)
		for _, conn := range []net.Conn{registered, committing, third, fourth} {
			require.NoError(t, alive(conn))
		}
		f, err := Read(asking)
		require.NoError(t, err)
		assert.EqualValues(t, protocol.Success, f.Code)
		_, err = sending.Write(large[readBuffer:])
		require.NoError(t, err)
		_, err = Read(sending)
		require.NoError(t, err)
		for _, conn := range []net.Conn{registered, holding, asking, committing, sending, first, second, third, fourth, silent} {
			require.NoError(t, conn.Close())
		}
		synctest.Wait()
		assert.Empty(t, lis.openSessions())
		assert.Zero(t, lis.evicted)
		require.NoError(t, lis.Close())
	})
}

func TestOnlySoManyLargeBodiesAreReadAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis, raw := limited(t, &fakeBroker{}, func(l *limits) { l.decoders = 1 })
		lis.bodies.reading <- struct{}{} // somebody is at it
		beat := func(clientID string) *Frame {
			return heartbeat().request(&protocol.HeartbeatRequest{ClientID: clientID})
		}
		large, small := raw(), raw()
		write(t, large, beat(strings.Repeat("x", 2*smallFrame)))
		write(t, small, beat("x"))
		_, err := Read(small)
		require.NoError(t, err, "small ones do not wait")
		synctest.Wait()
		answered := make(chan error, 1)
		go func() {
			_, err := Read(large)
			answered <- err
		}()
		synctest.Wait()
		require.Empty(t, answered)
		<-lis.bodies.reading
		require.NoError(t, <-answered)

		write(t, large, beat(strings.Repeat("x", maxBodyText)))
		f, err := Read(large)
		require.NoError(t, err)
		assert.EqualValues(t, protocol.SystemError, f.Code)
		assert.Contains(t, f.Remark, "at most 1048576 are allowed")
		require.NoError(t, errors.Join(large.Close(), small.Close(), lis.Close()))
	})
}

func TestLargePullsHoldLittleTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		lis, raw := limited(t, blocking(&running), func(l *limits) { l.heldBytes = 50 << 10 })
		conn := raw()
		long := pullMessage().request(&protocol.PullMessageRequest{Group: "G", Topic: "T", HasExpression: true, Expression: strings.Repeat("x || ", 4<<10)})
		write(t, conn, manyOf(long, 3)...)
		f, err := Read(conn)
		require.NoError(t, err)
		assert.EqualValues(t, protocol.SystemBusy, f.Code)
		assert.Contains(t, f.Remark, "bytes of large pulls")
		synctest.Wait()
		assert.EqualValues(t, 2, running.Load())
		write(t, conn, manyOf(pullMessage().request(&protocol.PullMessageRequest{Group: "G", Topic: "T"}), 100)...)
		synctest.Wait()
		assert.EqualValues(t, 102, running.Load(), "small ones are counted, not weighed")
		require.NoError(t, errors.Join(conn.Close(), lis.Close()))
		assert.True(t, lis.heldBytes.TryAcquire(50<<10), "all is given back")
	})
}

func TestHeadersHaveBounds(t *testing.T) {
	_, err := Parse(append([]byte{0, 0x10, 0, 1}, make([]byte, 2<<20)...))
	assert.ErrorIs(t, err, ErrBadFrame)
	many := &Frame{Serialize: Binary}
	for range maxFields + 1 {
		many.put("a", "b")
	}
	b, err := many.Append(nil)
	require.NoError(t, err)
	_, err = Read(bytes.NewReader(b))
	assert.ErrorIs(t, err, ErrBadFrame)
	assert.ErrorContains(t, err, fmt.Sprint(maxFields))
}

func TestWhatIsKeptOfALargeFrameDoesNotKeepTheFrame(t *testing.T) {
	for _, form := range []Serialize{JSON, Binary} {
		f := &Frame{Serialize: form, Ext: Fields{{"topic", "kept"}, {"x", strings.Repeat("x", 900<<10)}}}
		b, err := f.Append(nil)
		require.NoError(t, err)
		body := `{"kept":"kept","x":"` + strings.Repeat("x", 900<<10) + `"}`
		var kept []string
		const frames = 50
		grown := heapGrowth(func() {
			for range frames {
				f, err := Read(bytes.NewReader(b))
				require.NoError(t, err)
				topic, _ := f.Ext.Get("topic")
				v, err := ParseBody([]byte(body))
				require.NoError(t, err)
				kept = append(kept, topic, v.Get("kept").Text())
			}
		})
		assert.Less(t, grown, int64(frames*4<<10))
		assert.Len(t, kept, 2*frames)
	}
}

// heapGrowth is how many bytes more are in use after f.
func heapGrowth(f func()) int64 {
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := live()
	f()
	return live() - before
}

func TestOnewayRequestsThatWaitAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		lis, raw := limited(t, &fakeBroker{commit: func(context.Context, *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error) {
			<-release
			return &protocol.UpdateConsumerOffsetResponse{}, nil
		}}, func(*limits) {})
		commit := updateConsumerOffset().request(&protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T", Oneway: true})
		conn := raw()
		var written atomic.Int64
		go func() {
			b, err := commit.Append(nil)
			for range 1000 {
				if err == nil {
					_, err = conn.Write(b)
					written.Add(1)
				}
			}
		}()
		synctest.Wait()
		ahead := int64(readBuffer / 64) // what was read ahead
		assert.Less(t, written.Load(), laneLength+2+ahead)
		close(release)
		synctest.Wait()
		assert.EqualValues(t, 1000, written.Load())
		require.NoError(t, errors.Join(conn.Close(), lis.Close()))
	})
}

func TestAClientAnswersSoManyQuestionsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		p := newPair(t, &fakeBroker{}, fakePeer{info: func(ctx context.Context) (*protocol.GetConsumerRunningInfoResponse, error) {
			running.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		require.NoError(t, ask(t, p.conn))
		peer := p.broker.session.Peer
		answers := make(chan error, 2*maxPeerCalls)
		for range maxPeerCalls + 3 {
			go func() {
				_, err := peer.GetConsumerRunningInfo(t.Context(), &protocol.GetConsumerRunningInfoRequest{Group: "G", ClientID: "id"})
				answers <- err
			}()
		}
		for range 3 {
			assert.ErrorIs(t, <-answers, protocol.ErrBrokerBusy)
		}
		synctest.Wait()
		assert.EqualValues(t, maxPeerCalls, running.Load())
		p.close(t)
	})
}

func TestBodiesHaveBounds(t *testing.T) {
	_, err := ParseBody([]byte("[" + strings.Repeat("1,", maxValues) + "]"))
	assert.ErrorIs(t, err, errBadBody)
	assert.ErrorContains(t, err, "too many values")
	_, err = ParseBody([]byte("[" + strings.Repeat("1,", maxValues/2) + "]"))
	assert.NoError(t, err)
	_, err = ParseBody([]byte(strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)))
	assert.ErrorContains(t, err, "too deep")
	_, err = ParseBody([]byte(strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)))
	assert.NoError(t, err)
}

func TestNoPullIsBegunForAClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 100
		record := make([]byte, 100<<10)
		record[1], record[2] = 0x01, 0x90
		var begun atomic.Int64
		lis, raw := limited(t, &fakeBroker{pull: func(context.Context, *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
			begun.Add(1)
			return &protocol.PullMessageResponse{Records: [][]byte{record}}, nil
		}}, func(*limits) {})
		conn := raw()
		write(t, conn, manyOf(pullMessage().request(&protocol.PullMessageRequest{Group: "G", Topic: "T"}), many)...)
		synctest.Wait()
		assert.LessOrEqual(t, begun.Load(), int64(2*(maxPending/len(record)+2)), "what is written, and what waits")
		for range many {
			f, err := Read(conn)
			require.NoError(t, err)
			require.Len(t, f.Body, len(record))
		}
		assert.EqualValues(t, many, begun.Load(), "one that reads late gets all")

		write(t, conn, manyOf(pullMessage().request(&protocol.PullMessageRequest{Group: "G", Topic: "T"}), many)...)
		synctest.Wait()
		require.NoError(t, conn.Close())
		synctest.Wait()
		assert.Empty(t, lis.openSessions(), "the end is noticed by the write")
		require.NoError(t, lis.Close())
	})
}
