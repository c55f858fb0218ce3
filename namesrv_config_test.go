package pocketmq_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// dialNameServer opens a session with name server i as the node "probe".
func dialNameServer(t testing.TB, c *pocketmq.Cluster, i int) protocol.NameServerConn {
	t.Helper()
	conn, err := c.Transport().DialNameServer(context.Background(), protocol.Dial{Node: "probe", Addr: c.NameServerAddrs()[i]})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return conn
}

func putKV(t testing.TB, conn protocol.NameServerConn, namespace, key, value string) {
	t.Helper()
	_, err := conn.PutKVConfig(context.Background(), &protocol.PutKVConfigRequest{Namespace: namespace, Key: key, Value: value})
	require.NoError(t, err)
}

func getKV(conn protocol.NameServerConn, namespace, key string) (string, error) {
	r, err := conn.GetKVConfig(context.Background(), &protocol.GetKVConfigRequest{Namespace: namespace, Key: key})
	if err != nil {
		return "", err
	}
	return r.Value, nil
}

func TestKVConfigOutlivesANameServer(t *testing.T) {
	for name, real := range map[string]bool{"throwaway": false, "real folder": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cfg := pocketmq.ClusterConfig{NameServers: 2}
				if real {
					cfg.Dir = t.TempDir()
				}
				c := run(t, cfg)
				conn := dialNameServer(t, c, 0)
				putKV(t, conn, "N", "k", "v")
				putKV(t, conn, "N", "gone", "v")
				_, err := conn.DeleteKVConfig(t.Context(), &protocol.DeleteKVConfigRequest{Namespace: "N", Key: "gone"})
				require.NoError(t, err)
				_, err = getKV(dialNameServer(t, c, 1), "N", "k")
				assert.ErrorIs(t, err, pocketmq.ErrNotFound, "each name server has its own")

				require.NoError(t, c.KillNameServer(0))
				require.NoError(t, c.RestartNameServer(t.Context(), 0))
				conn = dialNameServer(t, c, 0)
				value, err := getKV(conn, "N", "k")
				require.NoError(t, err)
				assert.Equal(t, "v", value)
				_, err = getKV(conn, "N", "gone")
				assert.ErrorIs(t, err, pocketmq.ErrNotFound)
				list, err := conn.ListKVConfig(t.Context(), &protocol.ListKVConfigRequest{Namespace: "N"})
				require.NoError(t, err)
				assert.Equal(t, map[string]string{"k": "v"}, list.Table)
				if real {
					assert.FileExists(t, filepath.Join(cfg.Dir, "namesrv", "ns-0", "kvConfig.json"))
					assert.NoDirExists(t, filepath.Join(cfg.Dir, "namesrv", "ns-1"), "one that keeps nothing has no folder")
					stop(t, c)
					again := run(t, cfg)
					value, err = getKV(dialNameServer(t, again, 0), "N", "k")
					require.NoError(t, err)
					assert.Equal(t, "v", value)
				}
			})
		})
	}
}

// A broker group may be named as name servers are: their folders do not meet.
func TestFoldersOfNameServersAndBrokersAreApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		c := run(t, pocketmq.ClusterConfig{Dir: dir, Groups: groups("ns", "namesrv")})
		putKV(t, dialNameServer(t, c, 0), "N", "k", "v")
		assert.Equal(t, filepath.Join(dir, "ns-0"), c.Broker("ns", 0).Dir())
		assert.Equal(t, filepath.Join(dir, "namesrv-0"), c.Broker("namesrv", 0).Dir())
		assert.NoFileExists(t, filepath.Join(dir, "ns-0", "kvConfig.json"))
	})
}

func TestANameServerWithoutAFolderForgetsItsKVConfig(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{})
		for _, dir := range []string{"", t.TempDir()} {
			for _, kept := range []bool{false, dir != ""} {
				s, err := pocketmq.NewNameServer(pocketmq.NameServerConfig{Name: "own", Dir: dir, Transport: c.Transport()})
				require.NoError(t, err)
				require.NoError(t, s.Start(t.Context()))
				conn, err := c.Transport().DialNameServer(t.Context(), protocol.Dial{Node: "probe", Addr: s.Addr()})
				require.NoError(t, err)
				_, err = getKV(conn, "N", "k")
				assert.Equal(t, kept, err == nil, "%q: %v", dir, err)
				putKV(t, conn, "N", "k", "v")
				require.NoError(t, conn.Close())
				require.NoError(t, s.Close())
			}
		}
	})
}

func TestANameServerRefusesABrokenKVConfig(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "kvConfig.json")
	start := func(dir string) error {
		s, err := pocketmq.NewNameServer(pocketmq.NameServerConfig{Dir: dir, Transport: pocketmq.InMemory()})
		require.NoError(t, err)
		err = s.Start(t.Context())
		assert.NoError(t, s.Close())
		return err
	}
	require.NoError(t, start(filepath.Join(dir, "not", "there", "yet")))
	assert.NoDirExists(t, filepath.Join(dir, "not"), "a start makes nothing")
	require.NoError(t, os.WriteFile(file, []byte("nonsense"), 0o644))
	err := start(dir)
	require.Error(t, err)
	assert.ErrorContains(t, err, "name server ns-0: start: KV configuration: state file damaged: "+file)
	assert.ErrorContains(t, err, "move both away to start without this state")
	require.NoError(t, os.Remove(file))
	require.NoError(t, start(dir), "a failed start may be repeated")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	err = start(file)
	assert.ErrorContains(t, err, file+" is a file; NameServerConfig.Dir needs a folder")

	// A cluster names it, too, and leaves nothing.
	data := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(data, "namesrv", "ns-1"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(data, "namesrv", "ns-1", "kvConfig.json"), []byte("nonsense"), 0o644))
	_, err = startCluster(t.Context(), t, pocketmq.ClusterConfig{NameServers: 2, Dir: data})
	assert.ErrorContains(t, err, filepath.Join("ns-1", "kvConfig.json"))
	entries, err := os.ReadDir(data)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

func TestPR05_SettingsOfANameServerAreNotChangedFromOutside(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		c := run(t, pocketmq.ClusterConfig{Dir: dir, Topics: map[string]int{"T": 1}})
		conn := dialNameServer(t, c, 0)
		before, err := conn.GetNameServerConfig(t.Context(), &protocol.GetNameServerConfigRequest{})
		require.NoError(t, err)
		assert.Equal(t, "true", before.Settings["orderMessageEnable"])
		assert.Equal(t, "10000", before.Settings["scanNotActiveBrokerInterval"])
		for name, value := range before.Settings {
			assert.NotContains(t, name+value, string(filepath.Separator), "no paths")
		}
		files := tree(t, filepath.Dir(dir))
		_, err = conn.UpdateNameServerConfig(t.Context(), &protocol.UpdateNameServerConfigRequest{})
		require.ErrorIs(t, err, pocketmq.ErrNoPermission)
		assert.ErrorContains(t, err, "ns-0: the settings of ns-0 cannot be changed from outside, nothing was changed")
		after, err := conn.GetNameServerConfig(t.Context(), &protocol.GetNameServerConfigRequest{})
		require.NoError(t, err)
		assert.Equal(t, before, after)
		assert.Equal(t, files, tree(t, filepath.Dir(dir)))
		_, err = producer(t, c, pocketmq.ProducerConfig{}).Send(t.Context(), text("T", "still works"))
		assert.NoError(t, err)
	})
}

func TestKVConfigFromStrangersIsBoundedAndClipped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{})
		conn := dialNameServer(t, c, 0)
		long := fmt.Sprintf("%01000d", 7)
		_, err := getKV(conn, long, long)
		require.ErrorIs(t, err, &pocketmq.Error{Code: protocol.QueryNotFound})
		assert.Less(t, len(err.Error()), 500)
		_, err = conn.ListKVConfig(t.Context(), &protocol.ListKVConfigRequest{Namespace: "N"})
		assert.ErrorContains(t, err, "No config item, Namespace: N")
		_, err = getKV(conn, "N", "k")
		assert.ErrorContains(t, err, "No config item, Namespace: N Key: k")
		for i := range 2 {
			_, err = conn.PutKVConfig(t.Context(), &protocol.PutKVConfigRequest{Namespace: "N", Key: fmt.Sprint("k", i), Value: strings.Repeat("x", 900<<10)})
			require.NoError(t, err)
		}
		_, err = conn.PutKVConfig(t.Context(), &protocol.PutKVConfigRequest{Namespace: "N", Key: "k", Value: strings.Repeat("x", 900<<10)})
		assert.ErrorIs(t, err, &pocketmq.Error{Code: protocol.SystemError})
		assert.ErrorContains(t, err, "at most 2097152 are allowed")
		synctest.Wait()
	})
}

func TestTopicsRegisteredByToolsAreRoutable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		c := run(t, pocketmq.ClusterConfig{Groups: groups("a", "b"), OnEvent: events.add})
		conn := dialNameServer(t, c, 0)
		share := protocol.QueueData{BrokerName: "a", ReadQueues: 2, WriteQueues: 2, Perm: 6}
		_, err := conn.RegisterTopic(t.Context(), &protocol.RegisterTopicRequest{Topic: "T", Queues: []protocol.QueueData{share}})
		require.NoError(t, err)
		route, err := c.Admin().Route(t.Context(), "T")
		require.NoError(t, err)
		assert.Equal(t, []pocketmq.QueueData{{BrokerName: "a", ReadQueues: 2, WriteQueues: 2, Perm: 6}}, route.Queues)
		synctest.Wait()
		changed := eventsOf[pocketmq.RouteChanged](&events)
		assert.Equal(t, []string{"T"}, changed[len(changed)-1].Topics)

		_, err = conn.RegisterTopic(t.Context(), &protocol.RegisterTopicRequest{Topic: "U", Queues: []protocol.QueueData{{BrokerName: "nobody"}}})
		require.NoError(t, err, "as in the reference")
		_, err = c.Admin().Route(t.Context(), "U")
		assert.ErrorIs(t, err, pocketmq.ErrNoRoute)
		_, err = conn.RegisterTopic(t.Context(), &protocol.RegisterTopicRequest{Topic: "no/good", Queues: []protocol.QueueData{share}})
		assert.ErrorIs(t, err, pocketmq.ErrIllegalName)

		_, err = conn.DeleteTopic(t.Context(), &protocol.DeleteTopicRouteRequest{Topic: "T", Cluster: "other"})
		require.NoError(t, err)
		_, err = c.Admin().Route(t.Context(), "T")
		require.NoError(t, err)
		_, err = conn.DeleteTopic(t.Context(), &protocol.DeleteTopicRouteRequest{Topic: "T", Cluster: "DefaultCluster"})
		require.NoError(t, err)
		_, err = c.Admin().Route(t.Context(), "T")
		assert.ErrorIs(t, err, pocketmq.ErrNoRoute)
	})
}
