package pocketmq_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

func TestAPausedBrokerAnswersNobodyAndGoesOnWhereItWas(t *testing.T) {
	inBubbles(t, func(t *testing.T, over pocketmq.Transport) {
		c := run(t, pocketmq.ClusterConfig{Transport: over, Topics: map[string]int{"T": 1}})
		hasty := producer(t, c, oneTry)
		patient := producer(t, c, pocketmq.ProducerConfig{Group: "patient", Retries: pocketmq.NoRetries, SendTimeout: time.Hour})
		in := &inbox{}
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("c")})
		b := c.Broker("broker-a", 0)
		_, err := hasty.Send(t.Context(), text("T", "before"))
		require.NoError(t, err)
		require.NoError(t, patientSend(patient, "too"))
		time.Sleep(65 * time.Second)

		require.NoError(t, c.Pause("broker-a", 0))
		require.NoError(t, c.Pause("broker-a", 0), "it is paused already")
		st := b.Status()
		assert.False(t, st.Writable)
		assert.Equal(t, "paused; Cluster.Resume lets it go on", st.Reason)
		begin := time.Now()
		_, err = hasty.Send(t.Context(), text("T", "nobody waits"))
		require.ErrorIs(t, err, pocketmq.ErrUnknownOutcome)
		assert.Equal(t, time.Second, time.Since(begin))
		sent := make(chan error, 1)
		go func() { sent <- patientSend(patient, "somebody waits") }()
		time.Sleep(20 * time.Second) // at the next heartbeat clients lose their patience
		assert.Empty(t, sent)
		assert.Equal(t, int64(2), b.Status().WrittenPosition)

		require.NoError(t, c.Resume("broker-a", 0))
		require.NoError(t, <-sent)
		require.NoError(t, c.Resume("broker-a", 0), "it goes on already")
		time.Sleep(2 * time.Minute)
		assert.True(t, b.Status().Writable)
		assert.Equal(t, []string{"before", "too", "somebody waits"}, bodiesOf(queueContent(t, c, queue("T", "broker-a", 0))))
		assert.ElementsMatch(t, []string{"before", "too", "somebody waits"}, in.bodies())
	})
}

func patientSend(p *pocketmq.Producer, body string) error {
	_, err := p.Send(context.Background(), text("T", "%s", body))
	return err
}

func TestAnAnswerThatAPauseHoldsIsOfSomethingDone(t *testing.T) {
	inBubbles(t, func(t *testing.T, over pocketmq.Transport) {
		c := run(t, pocketmq.ClusterConfig{Transport: over, Topics: map[string]int{"T": 1}})
		p := producer(t, c, oneTry)
		h := c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Delay: time.Second / 2})
		sent := make(chan error, 1)
		go func() { sent <- patientSend(p, "x") }()
		require.NoError(t, h.Wait(t.Context(), 1))
		require.NoError(t, c.Pause("broker-a", 0)) // it is being served
		require.ErrorIs(t, <-sent, pocketmq.ErrUnknownOutcome)
		h.Remove()
		require.NoError(t, c.Resume("broker-a", 0))
		synctest.Wait()
		assert.Equal(t, []string{"x"}, bodiesOf(queueContent(t, c, queue("T", "broker-a", 0))))
	})
}

func TestWhatIsSaidOnewayToAPausedBrokerKeepsItsOrder(t *testing.T) {
	inBubbles(t, func(t *testing.T, over pocketmq.Transport) {
		c := run(t, pocketmq.ClusterConfig{Transport: over, Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		q := queue("T", "broker-a", 0)
		_, err := p.SendTo(t.Context(), q, text("T", "0"))
		require.NoError(t, err)
		require.NoError(t, c.Pause("broker-a", 0))
		begin := time.Now()
		want := []string{"0"}
		for i := range 20 {
			want = append(want, fmt.Sprint(i+1))
			require.NoError(t, p.SendOneway(t.Context(), text("T", "%d", i+1)))
		}
		assert.Zero(t, time.Since(begin), "nobody waits")
		require.NoError(t, p.Close())
		time.Sleep(time.Minute)
		require.NoError(t, c.Resume("broker-a", 0))
		time.Sleep(time.Second)
		assert.Equal(t, want, bodiesOf(queueContent(t, c, q)))
	})
}

func TestAPausedBrokerNeitherWritesNorSyncs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		_, err := p.Send(t.Context(), text("T", "synced"))
		require.NoError(t, err)
		time.Sleep(time.Second + 100*time.Millisecond) // between two flushes
		_, err = p.Send(t.Context(), text("T", "written"))
		require.NoError(t, err)
		require.NoError(t, c.Pause("broker-a", 0))
		before := tree(t, c.Broker("broker-a", 0).Dir())
		time.Sleep(time.Hour)
		st := c.Broker("broker-a", 0).Status()
		assert.Equal(t, []int64{2, 1}, []int64{st.WrittenPosition, st.SyncedPosition})
		assert.Equal(t, before, tree(t, c.Broker("broker-a", 0).Dir()), "its files")

		require.NoError(t, c.PowerOff("broker-a", 0), "and so a loss of power takes it")
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		assert.True(t, c.Broker("broker-a", 0).Status().Writable, "a new life is not paused")
		assert.Equal(t, []string{"synced"}, bodiesOf(queueContent(t, c, queue("T", "broker-a", 0))))
	})
}

func TestAPausedBrokerEndsAtOnce(t *testing.T) {
	for name, end := range map[string]func(*pocketmq.Cluster) error{
		"Close":    func(c *pocketmq.Cluster) error { return c.Broker("broker-a", 0).Close() },
		"Kill":     func(c *pocketmq.Cluster) error { return c.Kill("broker-a", 0) },
		"PowerOff": func(c *pocketmq.Cluster) error { return c.PowerOff("broker-a", 0) },
		"Cluster":  func(c *pocketmq.Cluster) error { return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubbles(t, func(t *testing.T, over pocketmq.Transport) {
				c := run(t, pocketmq.ClusterConfig{Transport: over, Dir: t.TempDir(), Topics: map[string]int{"T": 1}, Groups: syncFlush()})
				p := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries, SendTimeout: time.Hour})
				consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: (&inbox{}).handler("c")})
				require.NoError(t, patientSend(p, "a"))
				time.Sleep(time.Minute)
				require.NoError(t, c.SlowDisk("broker-a", 0, time.Second))
				writing := make(chan error, 1)
				go func() { writing <- patientSend(p, "being written") }()
				time.Sleep(time.Second / 2)
				require.NoError(t, c.Pause("broker-a", 0))
				waiting := make(chan error, 1)
				go func() { waiting <- patientSend(p, "waiting") }()
				require.NoError(t, p.SendOneway(t.Context(), text("T", "oneway")))
				time.Sleep(time.Minute)
				begin := time.Now()
				require.NoError(t, end(c))
				if name != "Cluster" { // which ends its clients first
					assert.Zero(t, time.Since(begin))
					require.ErrorIs(t, <-writing, pocketmq.ErrUnknownOutcome)
					require.ErrorIs(t, <-waiting, pocketmq.ErrUnknownOutcome)
					require.NoError(t, c.SlowDisk("broker-a", 0, 0))
					require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
					got := bodiesOf(queueContent(t, c, queue("T", "broker-a", 0)))
					assert.NotContains(t, got, "waiting")
					assert.NotContains(t, got, "oneway")
					assert.Contains(t, got, "a")
				}
			})
		})
	}
}

func TestAPausedBrokerIsForgottenByNameServersAndComesBack(t *testing.T) {
	inBubbles(t, func(t *testing.T, over pocketmq.Transport) {
		c := run(t, pocketmq.ClusterConfig{Transport: over, Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		require.NoError(t, c.Pause("broker-a", 0))
		time.Sleep(5 * time.Minute)
		assert.Len(t, c.NameServer(0).Status().Brokers, 1)
		for range 4 {
			res, err := p.Send(t.Context(), text("T", "x"))
			require.NoError(t, err)
			assert.Equal(t, "broker-b", res.Queue.BrokerName)
		}
		require.NoError(t, c.Resume("broker-a", 0))
		time.Sleep(time.Second)
		assert.Len(t, c.NameServer(0).Status().Brokers, 2, "at once")
	})
}

func TestMembersOfAPausedBrokerStayMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log eventLog
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}, OnEvent: log.add})
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", InstanceName: "stays", Subscriptions: all("T"), Handler: (&inbox{}).handler("c")})
		leaves := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", InstanceName: "leaves", Subscriptions: all("T"), Handler: (&inbox{}).handler("c")})
		time.Sleep(65 * time.Second)
		require.NoError(t, c.Pause("broker-a", 0))
		_ = leaves.Close() // its last commit has no answer
		time.Sleep(10 * time.Second)
		assert.Empty(t, eventsOf[pocketmq.MemberLeft](&log), "nobody has noticed")
		require.NoError(t, c.Resume("broker-a", 0))
		time.Sleep(time.Minute)
		left := eventsOf[pocketmq.MemberLeft](&log)
		require.Len(t, left, 1)
		assert.Contains(t, left[0].Client, "leaves")
		st, ok := c.Broker("broker-a", 0).Group("g")
		require.True(t, ok)
		require.Len(t, st.Members, 1)
		assert.Len(t, st.Members[0].Assigned, 4)
	})
}

func TestPauseOverTCP(t *testing.T) {
	t.Parallel()
	c := run(t, pocketmq.ClusterConfig{Transport: pocketmq.TCP("127.0.0.1"), Topics: map[string]int{"T": 1}})
	p := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries, SendTimeout: time.Minute})
	require.NoError(t, patientSend(p, "a"))
	require.NoError(t, c.Pause("broker-a", 0))
	sent := make(chan error, 1)
	go func() { sent <- patientSend(p, "b") }()
	select {
	case err := <-sent:
		t.Fatal("answered by a paused broker", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, c.Resume("broker-a", 0))
	require.NoError(t, <-sent)
	assert.Equal(t, []string{"a", "b"}, bodiesOf(queueContent(t, c, queue("T", "broker-a", 0))))
}

func TestFaultsOfMembersThatAreNotThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{})
		for name, do := range map[string]func(group string, id int64) error{
			"Pause":    c.Pause,
			"Resume":   c.Resume,
			"SlowDisk": func(g string, id int64) error { return c.SlowDisk(g, id, time.Second) },
			"FullDisk": func(g string, id int64) error { return c.FullDisk(g, id, true) },
		} {
			require.ErrorIs(t, do("nobody", 0), pocketmq.ErrNotFound, name)
			require.ErrorIs(t, do("broker-a", 7), pocketmq.ErrNotFound, name)
		}
		for name, do := range map[string]func() error{
			"name server":        func() error { return c.PauseNameServer(1) },
			"resume":             func() error { return c.ResumeNameServer(-1) },
			"controller":         func() error { return c.PauseController("broker-a") },
			"resume, controller": func() error { return c.ResumeController("nobody") },
		} {
			require.ErrorIs(t, do(), pocketmq.ErrNotFound, name)
		}
		require.NoError(t, c.KillNameServer(0))
		require.ErrorContains(t, c.PauseNameServer(0), "name server 0 is not running")
		require.ErrorContains(t, c.ResumeNameServer(0), "name server 0 is not running")
		require.NoError(t, c.RestartNameServer(t.Context(), 0))
		require.NoError(t, c.Kill("broker-a", 0))
		require.ErrorContains(t, c.Pause("broker-a", 0), "broker broker-a/0 is not running")
		require.ErrorContains(t, c.Resume("broker-a", 0), "broker broker-a/0 is not running")
		require.NoError(t, c.SlowDisk("broker-a", 0, 0), "the disk is there")
		require.NoError(t, c.Close())
		require.ErrorIs(t, c.Pause("broker-a", 0), pocketmq.ErrClosed)
		require.ErrorIs(t, c.FullDisk("broker-a", 0, false), pocketmq.ErrClosed)
	})
}
