package ha

import (
	"bytes"
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wirePair are both ends of a pipe.
func wirePair(t testing.TB, size int, silence time.Duration) (near, far *wire) {
	a, b := net.Pipe()
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return newWire(a, size, silence, anyFrame), newWire(b, size, silence, anyFrame)
}

func TestOnlyWaitingCountsAsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := wirePair(t, ackReadBytes, 20*time.Second)
		next := func(within time.Duration) error {
			_, _, err := near.next(time.Now().Add(within))
			return err
		}
		assert.ErrorIs(t, next(15*time.Second), errIdle)
		time.Sleep(time.Minute) // busy with something else
		assert.ErrorIs(t, next(4*time.Second), errIdle)
		go func() { _ = far.write(appendAck(nil, ackBody{}), time.Minute) }()
		assert.NoError(t, next(time.Second))
		assert.ErrorIs(t, next(19*time.Second), errIdle)
		begun := time.Now()
		assert.ErrorIs(t, next(time.Minute), ErrSilent)
		assert.Equal(t, time.Second, time.Since(begun))
	})
}

func TestABufferGrowsForAFrameAndShrinksWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := wirePair(t, 100, time.Minute)
		near.limit = func(frameKind) int { return 10 << 20 }
		large := appendState(nil, bytes.Repeat([]byte("x"), 3<<20))
		go func() {
			for range 3 {
				_ = far.write(large, time.Minute)
				_ = far.write(appendAck(nil, ackBody{1, 2}), time.Minute)
			}
		}()
		for range 3 {
			kind, body, err := near.next(time.Time{})
			require.NoError(t, err)
			assert.Equal(t, kindState, kind)
			assert.True(t, bytes.Equal(large[headerBytes:], body))
			kind, body, err = near.next(time.Time{})
			require.NoError(t, err)
			assert.Equal(t, kindAck, kind)
			assert.Equal(t, ackBody{1, 2}, must(parseAck(body)))
		}
		assert.Less(t, len(near.buf), 8<<20)
		_, _, err := near.next(time.Now().Add(time.Second))
		assert.ErrorIs(t, err, errIdle)
		assert.Empty(t, near.buf)
	})
}

// Frames that are whole in the buffer stay valid while more of them are taken.
func TestFramesInTheBufferAreTakenWithoutReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := wirePair(t, readBytes, time.Minute)
		var all []byte
		for i := range int64(10) {
			all = appendAck(all, ackBody{i, 1})
		}
		go func() { _ = far.write(all, time.Minute) }()
		var bodies [][]byte
		for {
			kind, body, err := near.next(time.Time{})
			require.NoError(t, err)
			require.Equal(t, kindAck, kind)
			bodies = append(bodies, body)
			if !near.ready(kindAck) {
				break
			}
			assert.False(t, near.ready(kindData))
		}
		require.Len(t, bodies, 10)
		for i, body := range bodies {
			assert.Equal(t, ackBody{int64(i), 1}, must(parseAck(body)))
		}
	})
}

func TestTheFirstReasonToStopIsThatOfBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, _ := wirePair(t, ackReadBytes, time.Minute)
		read, wrote := make(chan error, 1), make(chan error, 1)
		go func() { _, _, err := near.next(time.Time{}); read <- err }()
		go func() { wrote <- near.write(make([]byte, 10), time.Minute) }()
		synctest.Wait()
		begun := time.Now()
		near.stop(ErrStopped)
		near.stop(ErrSilent)
		assert.ErrorIs(t, <-read, ErrStopped)
		assert.ErrorIs(t, <-wrote, ErrStopped)
		_, _, err := near.next(time.Time{})
		assert.ErrorIs(t, err, ErrStopped)
		assert.ErrorIs(t, near.write([]byte{1}, time.Minute), ErrStopped)
		near.close(ErrStopped)
		assert.Zero(t, time.Since(begun), "no last words in the middle of a frame")
	})
}

// Over TCP the last words arrive although the other side has sent what nobody read.
func TestLastWordsCrossWhatIsOnItsWay(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { assert.NoError(t, l.Close()) }()
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		newWire(conn, ackReadBytes, time.Minute, anyFrame).close(ErrStaleConnection)
		done <- nil
	}()
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", l.Addr().String())
	require.NoError(t, err)
	far := newWire(conn, ackReadBytes, time.Minute, anyFrame)
	for range 100 {
		if far.write(appendAck(nil, ackBody{1, 1}), time.Minute) != nil {
			break
		}
	}
	kind, body, err := far.next(time.Time{})
	require.NoError(t, err)
	assert.Equal(t, kindGoodbye, kind)
	assert.ErrorIs(t, refusedBy("", must(parseGoodbye(body))), ErrStaleConnection)
	far.close(nil)
	assert.NoError(t, <-done)
}
