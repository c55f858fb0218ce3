package client

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

// withoutMaster is a route to a group whose master is missing.
func withoutMaster() protocol.TopicRoute {
	r := routeOf([2]string{"broker-a", "127.0.0.1:1"})
	r.Brokers[0].Addrs = map[int64]string{1: "127.0.0.1:2"}
	return r
}

func TestASuspicionIsLookedIntoOnceForAllWhoHaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.ns[0].set("t", routeOf([2]string{"broker-a", "127.0.0.1:1"}))
		c := w.client(0)
		_, err := c.Route(t.Context(), "t")
		require.NoError(t, err)
		c.Start()
		w.ns[0].lookups()
		c.Suspect()
		synctest.Wait()
		assert.Len(t, w.ns[0].lookups(), 1, "the first one at once")
		for range 10 {
			c.Suspect()
		}
		synctest.Wait()
		assert.Empty(t, w.ns[0].lookups())
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Len(t, w.ns[0].lookups(), 1)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Empty(t, w.ns[0].lookups(), "nobody suspects anything any more")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.Len(t, w.ns[0].lookups(), 1, "the regular one")
	})
}

func TestAMissingMasterIsLookedForRarerAndRarer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.ns[0].set("t", withoutMaster())
		c := w.client(0)
		c.Start()
		_, err := c.Route(t.Context(), "t")
		require.NoError(t, err)
		w.ns[0].lookups()
		count := func(d time.Duration) int {
			time.Sleep(d)
			synctest.Wait()
			return len(w.ns[0].lookups())
		}
		assert.InDelta(t, 6, count(5*time.Second), 1, "every second at first")
		assert.Less(t, count(25*time.Second), 10)
		count(10 * time.Minute)
		assert.Equal(t, 10, count(5*time.Minute), "as others in the end")

		w.ns[0].set("t", routeOf([2]string{"broker-a", "127.0.0.1:1"}))
		assert.Equal(t, 10, count(5*time.Minute))
		_, ok := c.MasterAddr("broker-a")
		assert.True(t, ok)
	})
}

func TestANameServerThatBrokersDoNotReachIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		for i, ns := range w.ns {
			ns.set("t", withoutMaster())
			if i == 2 {
				ns.set("t", routeOf([2]string{"broker-a", "127.0.0.1:1"}))
			}
		}
		c := w.client(0)
		c.Start()
		_, err := c.Route(t.Context(), "t")
		require.NoError(t, err)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		_, ok := c.MasterAddr("broker-a")
		assert.True(t, ok)
		asked := func() (n [3]int) {
			for i, ns := range w.ns {
				n[i] = len(ns.lookups())
			}
			return n
		}
		asked()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		assert.Equal(t, [3]int{0, 0, 10}, asked(), "it stays with the one that knows")

		// A master that is not one, as others know.
		w.ns[0].set("t", routeOf([2]string{"broker-a", "127.0.0.1:7"}))
		c.Suspect()
		synctest.Wait()
		time.Sleep(time.Second)
		c.Suspect()
		synctest.Wait()
		addr, _ := c.MasterAddr("broker-a")
		assert.Equal(t, "127.0.0.1:7", addr)
	})
}

func TestARouteThatIsRenewedInVainIsAskedOfTheNextNameServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		old, next := routeOf([2]string{"broker-a", "127.0.0.1:1"}), routeOf([2]string{"broker-a", "127.0.0.1:2"})
		for _, ns := range w.ns {
			ns.set("t", old)
		}
		c := w.client(0)
		_, err := c.Route(t.Context(), "t")
		require.NoError(t, err)
		stale := 0
		if len(w.ns[1].lookups()) > 0 {
			stale = 1 // it is the chosen one, and is cut off from the brokers
		}
		w.ns[0].lookups()
		w.ns[1-stale].set("t", next)
		changed, err := c.Renew(t.Context(), "t")
		require.NoError(t, err)
		assert.False(t, changed)
		changed, err = c.Renew(t.Context(), "t")
		require.NoError(t, err)
		assert.True(t, changed)
		addr, ok := c.MasterAddr("broker-a")
		assert.True(t, ok)
		assert.Equal(t, "127.0.0.1:2", addr)
	})
}
