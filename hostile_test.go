package pocketmq_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/mqtest"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/remoting"
)

// These tests are about what strangers may do to servers over TCP. Like those
// of leaks they look at the whole process and are not parallel.

// target is a server under attack.
type target struct{ name, addr string }

// underAttack starts a cluster over TCP and lets attack do its worst while a
// healthy producer sends and a healthy consumer gets everything. Afterwards
// nothing of it may be left.
func underAttack(t *testing.T, attack func(t *testing.T, targets []target)) {
	t.Helper()
	ownTemp(t)
	c := run(t, pocketmq.ClusterConfig{Transport: overTCP(), Topics: map[string]int{"T": 4}})
	var in inbox
	consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in.handler("g")})
	p := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries})
	sent := 0
	send := func() bool {
		_, err := p.Send(context.Background(), text("T", "%d", sent))
		sent++
		return assert.NoError(t, err, "a healthy client")
	}
	require.True(t, send())
	before := footprintNow(t)
	before.goroutines += 2*256 + 8 // workers that wait for the next request at each server, and a pull that is just being answered

	over := make(chan struct{})
	var healthy sync.WaitGroup
	healthy.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if !send() {
					return
				}
			case <-over:
				return
			}
		}
	})
	func() {
		defer healthy.Wait()
		defer close(over)
		attack(t, []target{{"name server", c.NameServerAddrs()[0]}, {"broker", c.Broker("broker-a", 0).Addr()}})
	}()
	require.True(t, send())
	require.Eventually(t, func() bool { return len(in.arrivals()) >= sent }, time.Minute, time.Millisecond)
	assert.Equal(t, numbers(sent), in.bodies())
	assertNothingLeft(t, before, "the attack")
}

// stranger connects without a client.
func stranger(t testing.TB, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// isClosed demands that the server closes a connection within a second, without
// an answer.
func isClosed(t testing.TB, conn net.Conn, what string) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Second)))
	answer, err := io.ReadAll(conn)
	assert.NotErrorIs(t, err, os.ErrDeadlineExceeded, "%s: it is still open", what)
	assert.Empty(t, answer, what)
}

// frame is a frame as it goes over the wire.
func frame(t testing.TB, f *remoting.Frame) []byte {
	t.Helper()
	b, err := f.Append(nil)
	require.NoError(t, err)
	return b
}

// raw puts a header and a body into a frame, whatever they are.
func raw(form byte, header, body string) []byte {
	n := 4 + len(header) + len(body)
	b := []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n), form, byte(len(header) >> 16), byte(len(header) >> 8), byte(len(header))}
	return append(append(b, header...), body...)
}

// sendFrame is a send, as clients make it.
func sendFrame(t testing.TB, topic, body string) []byte {
	t.Helper()
	return frame(t, &remoting.Frame{Code: 310, Body: []byte(body), Ext: remoting.Fields{
		{Name: "a", Value: "P"}, {Name: "b", Value: topic}, {Name: "c", Value: "TBW102"}, {Name: "d", Value: "1"}, {Name: "e", Value: "0"}, {Name: "f", Value: "0"},
		{Name: "g", Value: "1700000000000"}, {Name: "h", Value: "0"}, {Name: "i", Value: ""},
	}})
}

// answerTo reads one frame.
func answerTo(t testing.TB, conn net.Conn) *remoting.Frame {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	f, err := remoting.Read(conn)
	require.NoError(t, err)
	return f
}

// malformed are frames that end their connection, without an answer.
func malformed() map[string][]byte {
	vectors := make(map[string][]byte)
	for what, digits := range map[string]string{
		"length 0":                             "00000000",
		"length 3":                             "00000003616263",
		"length 4, header 0":                   "0000000400000000",
		"length -1":                            "ffffffff",
		"length 16 MiB + 1":                    "01000001",
		"length 16 MiB, its word included":     "00fffffd",
		"header longer than the frame":         "0000001400ffffff00000000000000000000000000000000",
		"header beyond 1 MiB":                  "00fffffc00fffff0" + strings.Repeat("20", 70000),
		"form 0x7f":                            "000000047f000000",
		"binary header cut":                    "0000000801000004" + "00690000",
		"binary remark of negative length":     "0000001901000015" + "0069" + "00" + "013d" + "00000001" + "00000000" + "ffffffff" + "00000000",
		"binary fields longer than the header": "0000001901000015" + "0069" + "00" + "013d" + "00000001" + "00000000" + "00000000" + "00000010",
		"binary name of negative length":       "0000001f0100001b" + "0069" + "00" + "013d" + "00000001" + "00000000" + "00000000" + "00000006" + "ffff00000001",
	} {
		b, err := hex.DecodeString(digits)
		if err != nil {
			panic(what)
		}
		vectors[what] = b
	}
	for what, header := range map[string]string{
		"cut JSON": `{"code":105,"opaque":1`, "no JSON": "hello", "a list": "[]", "a text": `"x"`, "nothing": "",
		"text for a number":     `{"code":"many","opaque":1}`,
		"a number too large":    `{"code":99999999999999999999}`,
		"deep lists":            `{"x":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + "}",
		"deep objects":          `{"x":` + strings.Repeat(`{"x":`, 10_000) + "1" + strings.Repeat("}", 10_000) + "}",
		"very many fields":      `{"code":105,"extFields":{` + strings.Repeat(`"a":"b",`, 10_000) + `}}`,
		"a number of megabytes": `{"code":` + strings.Repeat("9", 2<<20) + `}`,
		"a text without an end": `{"remark":"` + strings.Repeat("x", 1<<19),
	} {
		vectors[what] = raw(0, header, "")
	}
	return vectors
}

func TestPR01_MalformedFramesEndTheirConnectionOnly(t *testing.T) {
	underAttack(t, func(t *testing.T, targets []target) {
		for _, at := range targets {
			for what, b := range malformed() {
				conn := stranger(t, at.addr)
				_, _ = conn.Write(b) // it may be closed before all was written
				isClosed(t, conn, at.name+": "+what)
				require.NoError(t, conn.Close())

				// Behind a good request, whose answer may get lost with the connection.
				conn = stranger(t, at.addr)
				_, _ = conn.Write(append(frame(t, &remoting.Frame{Code: 4711, Opaque: 7}), b...))
				require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Second)))
				if f, err := remoting.Read(conn); err == nil {
					assert.EqualValues(t, 7, f.Opaque, what)
				}
				isClosed(t, conn, at.name+": behind a good request: "+what)
				require.NoError(t, conn.Close())
			}
			// No such code, a negative id, fields that are missing: an answer each.
			conn := stranger(t, at.addr)
			for _, f := range []*remoting.Frame{{Code: 4711, Opaque: -5}, {Code: -1, Opaque: 6, Serialize: remoting.Binary}, {Code: 105}, {Code: int32(protocol.CodeSendMessage)}} {
				_, err := conn.Write(frame(t, f))
				require.NoError(t, err)
				answer := answerTo(t, conn)
				assert.NotZero(t, answer.Code)
				assert.NotEmpty(t, answer.Remark)
				assert.Equal(t, f.Opaque, answer.Opaque)
				assert.Equal(t, f.Serialize, answer.Serialize)
			}
			require.NoError(t, conn.Close())
		}
	})
}

// heapOf is how much the heap grows while f's work stands.
func heapOf(f func() (undo func())) int64 {
	live := func() int64 {
		runtime.GC()
		runtime.GC() // what finalizers held
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := live()
	undo := f()
	grown := live() - before
	undo()
	return grown
}

func TestPR02_WebClientsAreClosedAtOnce(t *testing.T) {
	underAttack(t, func(t *testing.T, targets []target) {
		for _, at := range targets {
			for what, b := range map[string]string{
				"HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP": "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "SSH": "SSH-2.0-OpenSSH_9.6\r\n",
				"PROXY": "PROXY TCP4 10.0.0.7 127.0.0.1 12345 10911\r\n", "half a TLS hello that is none": "\x16\x16\x16\x16\x16\x16\x16\x16",
				"16 MiB + 1": "\x01\x00\x00\x01",
			} {
				for range 10 {
					conn := stranger(t, at.addr)
					_, err := conn.Write([]byte(b))
					require.NoError(t, err)
					require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Second)))
					_, err = io.ReadAll(conn)
					assert.NotErrorIs(t, err, os.ErrDeadlineExceeded, "%s: %s", at.name, what)
					require.NoError(t, conn.Close())
				}
			}
		}
	})
	t.Run("memory", func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Transport: overTCP()})
		for what, b := range map[string]string{
			"nothing": "", "half a length": "\x00\x00", "a claim of 16 MiB": "\x00\xff\xff\xfc\x00\x00\x00\xf0{\"code\":", "half a TLS hello": "\x16\x03\x01\x02\x00\x01",
		} {
			const clients = 100
			grown := heapOf(func() func() {
				var conns []net.Conn
				for range clients {
					conn := stranger(t, c.Broker("broker-a", 0).Addr())
					_, err := conn.Write([]byte(b))
					require.NoError(t, err)
					conns = append(conns, conn)
				}
				// All have been accepted, and most have been read, when one more was served.
				conn := stranger(t, c.Broker("broker-a", 0).Addr())
				_, err := conn.Write(frame(t, &remoting.Frame{Code: 4711}))
				require.NoError(t, err)
				answerTo(t, conn)
				return func() {
					for _, conn := range append(conns, conn) {
						require.NoError(t, conn.Close())
					}
				}
			})
			t.Logf("%d clients that send %s: %d KiB of heap", clients, what, grown>>10)
			assert.Less(t, grown, int64(clients*20<<10), what)
		}
	})
}

func TestPR05_NobodyConfiguresAServerRemotely(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "written")
	underAttack(t, func(t *testing.T, targets []target) {
		const updateBroker, updateNameServer = 25, 318
		for _, at := range targets {
			for _, properties := range []string{
				"storePathRootDir=" + dir + "\nbrokerConfigPath=" + file, "configStorePath=" + file + "\nkvConfigPath=" + file, "rocketmqHome=" + dir,
				"sendMessageThreadPoolNums=0\nserverWorkerThreads=0", "brokerPermission=0", "flushDiskType=SYNC_FLUSH",
			} {
				for _, code := range []int32{updateBroker, updateNameServer} {
					conn := stranger(t, at.addr)
					_, err := conn.Write(frame(t, &remoting.Frame{Code: code, Opaque: 1, Body: []byte(properties)}))
					require.NoError(t, err)
					answer := answerTo(t, conn)
					assert.NotEqualValues(t, protocol.Success, answer.Code, "%s, %d: %s", at.name, code, properties)
					assert.NotEmpty(t, answer.Remark)
					require.NoError(t, conn.Close())
				}
			}
		}
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Empty(t, left)
	})
	t.Run("nobody listens unless told where", func(t *testing.T) {
		c := mqtest.Run(t, pocketmq.ClusterConfig{}) // not that of the flag
		_, err := net.DialTimeout("tcp", c.Broker("broker-a", 0).Addr(), time.Second)
		assert.Error(t, err, "a cluster is in memory unless it is given another transport")
		_, err = startCluster(t.Context(), t, pocketmq.ClusterConfig{Transport: pocketmq.TCP("")})
		assert.ErrorIs(t, err, pocketmq.ErrInvalidConfig)
		c = run(t, pocketmq.ClusterConfig{Transport: overTCP()})
		for _, addr := range append(c.NameServerAddrs(), c.Broker("broker-a", 0).Addr()) {
			assert.True(t, strings.HasPrefix(addr, "127.0.0.1:"), addr)
		}
	})
}

// bodies that are much for what they say.
func monsters() map[string]string {
	return map[string]string{
		"deep":              `{"clientID":"x","consumerDataSet":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}",
		"very many":         `{"clientID":"x","consumerDataSet":[` + strings.Repeat("1,", 100_000) + "}",
		"too many":          `{"consumerDataSet":[` + strings.Repeat("1,", 2<<20) + "]}",
		"a number":          `{"clientID":` + strings.Repeat("9", 4<<20) + "}",
		"a text":            `{"clientID":"` + strings.Repeat("x", 5<<20) + `"}`,
		"no end":            `{"clientID":"` + strings.Repeat("x", 500_000),
		"no JSON":           strings.Repeat("\x00", 1<<19),
		"long, and escaped": `{"clientID":"` + strings.Repeat(`\u0041`, 150_000) + `"}`,
	}
}

func TestBodiesOfMegabytesAreAnsweredWithAnError(t *testing.T) {
	underAttack(t, func(t *testing.T, targets []target) {
		for _, at := range targets {
			for what, body := range monsters() {
				for _, code := range []protocol.Code{protocol.CodeHeartbeat, protocol.CodeLockQueues, protocol.CodeRegisterBroker} {
					conn := stranger(t, at.addr)
					header := fmt.Sprintf(`{"code":%d,"opaque":1,"version":479,"extFields":{"brokerName":"x","brokerAddr":"127.0.0.1:1","clusterName":"c","brokerId":"0","haServerAddr":"h"}}`, code)
					_, err := conn.Write(raw(0, header, body))
					require.NoError(t, err)
					answer := answerTo(t, conn)
					if !strings.HasPrefix(what, "long") && code != protocol.CodeRegisterBroker { // which may be large, and needs nothing of its body
						assert.NotEmpty(t, answer.Remark, "%s: %s, %d", at.name, what, code)
					}
					assert.Less(t, len(answer.Remark), 1000)
					require.NoError(t, conn.Close())
				}
			}
		}
	})
}

func TestManyLargeBodiesAtATimeAreBounded(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{Transport: overTCP()})
	heartbeat := frame(t, &remoting.Frame{Code: int32(protocol.CodeHeartbeat), Body: []byte(`{"clientID":"x","consumerDataSet":[` + strings.Repeat("1,", 500_000) + "}")})
	const clients = 20
	before := live()
	var done sync.WaitGroup
	for range clients {
		conn := stranger(t, c.Broker("broker-a", 0).Addr())
		done.Go(func() {
			if _, err := conn.Write(heartbeat); assert.NoError(t, err) {
				_, err = remoting.Read(conn)
				assert.NoError(t, err)
			}
			assert.NoError(t, conn.Close())
		})
	}
	over := make(chan struct{})
	go func() { done.Wait(); close(over) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	peak := uint64(0)
	for ended := false; !ended; {
		select {
		case <-over:
			ended = true
		case <-tick.C:
		}
		peak = max(peak, live())
	}
	grown := int64(peak) - int64(before)
	t.Logf("%d clients that send %d KiB of JSON each: %d MiB of heap at most", clients, len(heartbeat)>>10, grown>>20)
	// What one decoder makes and another one leaves while the collector is at work counts as live.
	const decoders, each = 2, 128 << 20
	assert.Less(t, grown, int64(decoders*each+clients*4*len(heartbeat)), "as remoting's limits say")
}

// live is how many bytes of the heap a collection has found in use.
func live() uint64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func TestClientsThatAskAndLeaveCostNothing(t *testing.T) {
	underAttack(t, func(t *testing.T, targets []target) {
		var request []byte
		for i := range 20 {
			request = append(request, frame(t, &remoting.Frame{Code: int32(protocol.CodeGetMaxOffset), Opaque: int32(i), Ext: remoting.Fields{{Name: "topic", Value: "T"}, {Name: "queueId", Value: "0"}}})...)
			request = append(request, frame(t, &remoting.Frame{Code: int32(protocol.CodePullMessage), Opaque: int32(i), Ext: remoting.Fields{
				{Name: "consumerGroup", Value: "g"}, {Name: "topic", Value: "T"}, {Name: "queueId", Value: "0"}, {Name: "queueOffset", Value: "1000000"}, {Name: "maxMsgNums", Value: "32"},
				{Name: "sysFlag", Value: "2"}, {Name: "commitOffset", Value: "0"}, {Name: "suspendTimeoutMillis", Value: "20000"}, {Name: "subVersion", Value: "0"},
			}})...)
		}
		for range 200 {
			for _, at := range targets {
				conn, err := net.Dial("tcp", at.addr)
				require.NoError(t, err)
				_, err = conn.Write(request)
				require.NoError(t, err)
				require.NoError(t, conn.Close())
			}
		}
	})
}

func TestClientsThatNeverReadAreBounded(t *testing.T) {
	underAttack(t, func(t *testing.T, targets []target) {
		broker := targets[1].addr
		// A topic full of large messages, and who pulls them without reading any.
		body := strings.Repeat("x", 200<<10)
		fill := stranger(t, broker)
		for range 8 {
			_, err := fill.Write(sendFrame(t, "Large", body))
			require.NoError(t, err)
			require.Zero(t, answerTo(t, fill).Code)
		}
		pull := frame(t, &remoting.Frame{Code: int32(protocol.CodePullMessage), Ext: remoting.Fields{
			{Name: "consumerGroup", Value: "h"}, {Name: "topic", Value: "Large"}, {Name: "queueId", Value: "0"}, {Name: "queueOffset", Value: "0"}, {Name: "maxMsgNums", Value: "32"},
			{Name: "sysFlag", Value: "4"}, {Name: "subscription", Value: "*"}, {Name: "commitOffset", Value: "0"}, {Name: "suspendTimeoutMillis", Value: "0"}, {Name: "subVersion", Value: "0"},
		}})
		const clients, pulls = 10, 500
		grown := heapOf(func() func() {
			var conns []net.Conn
			var writing sync.WaitGroup
			for range clients {
				conn := stranger(t, broker)
				require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
				conns = append(conns, conn)
				require.NoError(t, conn.SetWriteDeadline(time.Now().Add(time.Second)))
				writing.Go(func() { _, _ = conn.Write(bytes.Repeat(pull, pulls)) }) // it may be cut off before all was written
			}
			writing.Wait()
			return func() {
				for _, conn := range conns {
					require.NoError(t, conn.Close())
				}
			}
		})
		t.Logf("%d clients that ask for %d MiB each and read nothing: %d MiB of heap", clients, pulls*len(body)>>20, grown>>20)
		assert.Less(t, grown, int64(clients*8<<20), "what is being written to each, and what waits for that")
		require.NoError(t, fill.Close())
	})
}

// Answers are counted before they are made, and none are made for who has left.
func TestClientsThatAskForLargeMessagesAndLeaveAreBounded(t *testing.T) {
	const clients, pulls, size = 40, 1000, 4<<20 - 1<<10
	c := run(t, pocketmq.ClusterConfig{Transport: overTCP(), Topics: map[string]int{"Large": 1}})
	p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: time.Minute, AttemptTimeout: time.Minute, CompressOver: -1})
	res, err := p.Send(t.Context(), &pocketmq.Message{Topic: "Large", Body: bytes.Repeat([]byte("x"), size)})
	require.NoError(t, err)
	b := c.Broker("broker-a", 0)
	pull := frame(t, &remoting.Frame{Code: int32(protocol.CodePullMessage), Ext: remoting.Fields{
		{Name: "consumerGroup", Value: "h"}, {Name: "topic", Value: "Large"}, {Name: "queueId", Value: "0"}, {Name: "queueOffset", Value: strconv.FormatInt(res.QueueOffset, 10)}, {Name: "maxMsgNums", Value: "32"},
		{Name: "sysFlag", Value: "4"}, {Name: "subscription", Value: "*"}, {Name: "commitOffset", Value: "0"}, {Name: "suspendTimeoutMillis", Value: "0"}, {Name: "subVersion", Value: "0"},
	}})
	before := b.Status().Connections
	grown := heapOf(func() func() {
		var conns []net.Conn
		var writing sync.WaitGroup
		for range clients {
			conn := stranger(t, b.Addr())
			require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
			conns = append(conns, conn)
			require.NoError(t, conn.SetWriteDeadline(time.Now().Add(time.Second)))
			writing.Go(func() { _, _ = conn.Write(bytes.Repeat(pull, pulls)) }) // it may be cut off before all was written
		}
		writing.Wait()
		return func() {
			for _, conn := range conns {
				require.NoError(t, conn.Close())
			}
		}
	})
	t.Logf("%d clients that ask for %d MiB each and read nothing: %d MiB of heap", clients, pulls*size>>20, grown>>20)
	// answers, twice making, and what each connection has: see limits in package remoting.
	assert.Less(t, grown, int64(256<<20+2*(128<<20)+clients<<20))
	require.Eventually(t, func() bool { return b.Status().Connections <= before }, time.Minute, time.Millisecond, "nothing is done for those who have left")
	_, err = p.Send(t.Context(), &pocketmq.Message{Topic: "Large", Body: []byte("x")})
	require.NoError(t, err)
}

func TestFloodsOfConnectionsKeepNobodyOut(t *testing.T) {
	underAttack(t, func(t *testing.T, targets []target) {
		var flood sync.WaitGroup
		for _, at := range targets {
			for range 4 {
				flood.Go(func() {
					for i := range 500 {
						conn, err := net.Dial("tcp", at.addr)
						if !assert.NoError(t, err) {
							return
						}
						if i%2 == 0 {
							_, _ = conn.Write([]byte("\x00\x00"))
						}
						assert.NoError(t, conn.(*net.TCPConn).SetLinger(0))
						assert.NoError(t, conn.Close())
					}
				})
			}
		}
		flood.Wait()
	})
}

func TestSlowHeadersKeepNobodyOut(t *testing.T) {
	underAttack(t, func(t *testing.T, targets []target) {
		header := raw(0, `{"code":105,"opaque":1,"extFields":{"topic":"T"}}`, "")
		var slow sync.WaitGroup
		for _, at := range targets {
			for range 50 {
				conn := stranger(t, at.addr)
				slow.Go(func() {
					tick := time.NewTicker(10 * time.Millisecond)
					defer tick.Stop()
					for _, b := range header[:40] { // never the whole
						<-tick.C
						if _, err := conn.Write([]byte{b}); !assert.NoError(t, err, "within the limit it is welcome") {
							return
						}
					}
					assert.NoError(t, conn.Close())
				})
			}
		}
		slow.Wait()
	})
}
