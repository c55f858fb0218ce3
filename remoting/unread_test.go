package remoting

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

func TestWhatIsLastingIsKnown(t *testing.T) {
	var broker, names []string
	for _, r := range brokerRows() {
		if r.isLasting() {
			broker = append(broker, r.title())
		}
	}
	for _, r := range nameServerRows() {
		if r.isLasting() {
			names = append(names, r.title())
		}
	}
	slices.Sort(broker)
	slices.Sort(names)
	assert.Equal(t, []string{
		"CloneGroupOffset", "ConsumerSendMsgBack", "CreateTopic", "CreateTopicList", "DeleteGroup", "DeleteTopic", "NotifyMinBrokerID", "ResetOffset",
		"SendMessage", "UnlockQueues", "UnregisterClient", "UpdateConsumerOffset", "UpdateGroup", "UpdateGroupList",
	}, broker)
	assert.Equal(t, []string{
		"AddWritePerm", "DeleteKVConfig", "DeleteTopic", "PutKVConfig", "RegisterBroker", "RegisterTopic", "UnregisterBroker", "WipeWritePerm",
	}, names)
}

// Of what lies unread when a client has gone.
func TestOnlyWhatHasAnEffectIsDoneForAClientThatIsGone(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems may throw away at a reset what was not read")
	}
	const rounds = 20
	var (
		mu    sync.Mutex
		done  = make(map[string]int)
		sends = make(chan int, 2+rounds)
		gone  = make(chan struct{})
		lis   *listener[protocol.BrokerConn]
	)
	note := func(what string) int {
		mu.Lock()
		defer mu.Unlock()
		done[what]++
		return done[what]
	}
	b := &fakeBroker{
		send: func(ctx context.Context, _ *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			n := note("send")
			sends <- n
			switch n {
			case 1:
				<-gone
			case 2:
				<-lis.openSessions()[0].link.reader.Done() // the answer before could not be written
			}
			return &protocol.SendMessageResponse{}, nil
		},
		maximum: func(context.Context, *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
			note("maximum")
			return &protocol.GetMaxOffsetResponse{}, nil
		},
		pull: func(context.Context, *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
			note("pull")
			return &protocol.PullMessageResponse{}, nil
		},
		commit: func(context.Context, *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error) {
			note("commit")
			return &protocol.UpdateConsumerOffsetResponse{}, nil
		},
	}
	b.r = &recorder{}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	lim := defaultLimits()
	lim.connServed = 1
	lis = serve(ln, ln.Addr().String(), site{broker: "broker-a"}, brokerRows(), b.Connect, newSecurity(Options{}), lim)
	defer func() { assert.NoError(t, lis.Close()) }()
	conn, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	send := sendMessage().request(&protocol.SendMessageRequest{Topic: "T", Body: make([]byte, 100)})
	oneway := sendMessage().request(&protocol.SendMessageRequest{Topic: "T", Body: make([]byte, 100), Oneway: true})
	maximum := getMaxOffset().request(&protocol.GetMaxOffsetRequest{Topic: "T"})
	frames := []*Frame{maximum, send, maximum, send}
	for range rounds {
		frames = append(frames,
			maximum, pullMessage().request(&protocol.PullMessageRequest{Group: "G", Topic: "T"}), oneway,
			updateConsumerOffset().request(&protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T"}))
	}
	var all []byte
	for _, f := range frames {
		all, err = f.Append(all)
		require.NoError(t, err)
	}
	_, err = conn.Write(all)
	require.NoError(t, err)
	_, err = conn.(*net.TCPConn).Read(make([]byte, 1)) // the rest of the first answer makes of the close a reset
	require.NoError(t, err)
	require.Equal(t, 1, <-sends)
	require.NoError(t, conn.Close())
	close(gone)
	late := time.After(20 * time.Second)
	for n := 2; n <= 2+rounds; n++ {
		select {
		case <-sends:
		case <-late:
			require.FailNow(t, "sends that were not served", "%d of %d", n, 2+rounds)
		}
	}
	require.Eventually(t, func() bool { return len(lis.openSessions()) == 0 }, 20*time.Second, time.Millisecond)
	assert.Equal(t, rounds, done["commit"])
	assert.Zero(t, done["pull"])
	assert.LessOrEqual(t, done["maximum"], 2, "those that were read before an answer could not be written")
}

// The bytes of answers that are being made are those of the server, not of its clients.
func TestAnswersAreCountedBeforeTheyAreMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, clients = 4 << 20, 20
		record := make([]byte, size)
		record[1] = size >> 16
		var reading, most, read atomic.Int64
		lis, raw := limited(t, &fakeBroker{pull: func(ctx context.Context, _ *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
			if err := protocol.ReserveAnswer(ctx, size); err != nil {
				return nil, err
			}
			most.Store(max(most.Load(), reading.Add(1)))
			defer reading.Add(-1)
			read.Add(1)
			time.Sleep(time.Second) // a disk
			return &protocol.PullMessageResponse{Records: [][]byte{record}}, nil
		}}, func(l *limits) { l.making, l.answers = 3*size, clients*4*size })
		pulls := manyOf(pullMessage().request(&protocol.PullMessageRequest{Group: "G", Topic: "T"}), 50)
		var conns []net.Conn
		for range clients {
			conn := raw()
			conns = append(conns, conn)
			write(t, conn, pulls...)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.EqualValues(t, 3, most.Load())
		assert.LessOrEqual(t, read.Load(), int64(clients*(2+readsPerConn)), "what is written to each, what waits for that, and what waits for room")
		assert.LessOrEqual(t, lis.answers.bytes.Load(), int64(clients*4*(size+100)))
		require.True(t, lis.making.TryAcquire(3*size), "answers that wait are not being made any more")
		lis.making.Release(3 * size)
		for range pulls { // who reads gets all
			f, err := Read(conns[0])
			require.NoError(t, err)
			require.Len(t, f.Body, size)
		}
		for _, conn := range conns {
			require.NoError(t, conn.Close())
		}
		synctest.Wait()
		assert.Empty(t, lis.openSessions())
		assert.True(t, lis.making.TryAcquire(3*size), "all is given back")
		require.NoError(t, lis.Close())
	})
}

func TestTheREADMESaysHowMuchAServerHoldsAtMost(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	says := func(what string) { assert.True(t, strings.Contains(string(readme), what), what) }
	l := defaultLimits()
	each, shared := l.worst()
	says(fmt.Sprintf("%.1f GiB that all connections share", float64(shared)/(1<<30)))
	says(fmt.Sprintf("%d KiB for each of them", each>>10))
	whole := (int64(l.conns)*each + shared + 1<<30 - 1) >> 30
	says(fmt.Sprintf("a server holds at most %d GiB", whole))
}
