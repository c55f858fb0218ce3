package remoting

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// some writes as much of what it gets as its function says.
type some func(b []byte) (int, error)

func (s some) write(b []byte) (int, error) { return s(b) }

// wired is a link that serves nothing, and the other side of its connection.
func wired(direct nonblocking) (*link, net.Conn) {
	ours, theirs := net.Pipe()
	l := newLink(ours, idleLimit)
	l.direct = direct
	l.start(service{request: func(*Frame, *lease) bool { return true }, done: func() {}})
	return l, theirs
}

// numbered is a frame with a number.
func numbered(n int) *Frame { return &Frame{Opaque: int32(n), Body: make([]byte, n%100)} }

func TestAFrameThatIsAloneIsWrittenByWhoAddsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var on []string
		l, theirs := wired(some(func(b []byte) (int, error) {
			on = append(on, goroutine())
			return len(b), nil
		}))
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		for n := range writeAlone + 5 {
			require.NoError(t, l.send(t.Context(), numbered(n)))
			synctest.Wait()
		}
		me := goroutine()
		assert.Equal(t, []string{me, me, me, me, me}, on, "first it had to be seen that they are")
		l.end(nil)
		l.wait()
		require.NoError(t, theirs.Close())
	})
}

// TestWhatIsWrittenInPartsArrivesInOrder: some bytes at once, the rest by the
// writing goroutine, and others add frames meanwhile.
func TestWhatIsWrittenInPartsArrivesInOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	synctest.Test(t, func(t *testing.T) {
		const senders, each = 4, 200
		var l *link
		var theirs net.Conn
		l, theirs = wired(some(func(b []byte) (n int, err error) {
			switch r.IntN(4) {
			case 0:
				n = len(b)
			case 1:
				return 0, syscall.EPIPE // what that means the writing goroutine finds
			default:
				n = r.IntN(len(b))
			}
			if n > 0 {
				n, err = l.conn.Write(b[:n])
			}
			return n, err
		}))
		next := make([]int, senders)
		read := make(chan error, 1)
		go func() {
			for range senders * each {
				f, err := Read(theirs)
				if err != nil {
					read <- err
					return
				}
				sender, n := int(f.Opaque)/each, int(f.Opaque)%each
				if n != next[sender] || len(f.Body) != n%100 {
					read <- errors.New("not in order")
					return
				}
				next[sender]++
			}
			read <- nil
		}()
		var sending sync.WaitGroup
		for sender := range senders {
			sending.Go(func() {
				for n := range each {
					f := numbered(n)
					f.Opaque += int32(sender * each)
					assert.NoError(t, l.send(t.Context(), f))
					if n%40 > 20 { // alone, or not
						time.Sleep(time.Millisecond)
					}
				}
			})
			if sender%2 == 1 {
				sending.Wait()
			}
		}
		sending.Wait()
		l.flush()
		require.NoError(t, <-read)
		l.end(nil)
		l.wait()
		require.NoError(t, theirs.Close())
	})
}

func TestAClientThatReadsLateGetsAllAnswersInOrder(t *testing.T) {
	record := make([]byte, 64<<10)
	binary.BigEndian.PutUint32(record, uint32(len(record)))
	lis, conn := overLoopback(t, &fakeBroker{
		send: func(_ context.Context, q *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			return &protocol.SendMessageResponse{QueueOffset: q.BornTime.UnixMilli()}, nil
		},
		pull: func(context.Context, *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
			return &protocol.PullMessageResponse{Records: [][]byte{record}}, nil
		},
	})
	raw, err := net.Dial("tcp", lis.Addr())
	require.NoError(t, err)
	const many = 300
	var out []byte
	for n := range many {
		f := sendMessage().request(&protocol.SendMessageRequest{Topic: "T", Body: []byte("b")})
		if n%3 == 0 {
			f = pullMessage().request(&protocol.PullMessageRequest{Group: "G", Topic: "T"})
		}
		f.Opaque = int32(n)
		out, err = f.Append(out)
		require.NoError(t, err)
	}
	_, err = raw.Write(out)
	require.NoError(t, err)
	seen := make(map[int32]bool)
	for range many {
		f, err := Read(raw)
		require.NoError(t, err)
		require.EqualValues(t, protocol.Success, f.Code)
		if f.Opaque%3 == 0 {
			require.True(t, bytes.Equal(record, f.Body))
		}
		require.False(t, seen[f.Opaque])
		seen[f.Opaque] = true
	}
	require.NoError(t, errors.Join(raw.Close(), conn.Close(), lis.Close()))
}
