package pocketmq_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/remoting"
)

// rawConn is a connection that knows nothing but frames.
type rawConn struct {
	net.Conn
	form   remoting.Serialize
	opaque int32
}

func rawDial(t testing.TB, addr string, form remoting.Serialize) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return &rawConn{Conn: conn, form: form}
}

// ask sends a request as a Java tool would and returns the answer. fields are
// names and values, alternating.
func (c *rawConn) ask(t testing.TB, code int32, body string, fields ...string) *remoting.Frame {
	t.Helper()
	c.opaque++
	f := &remoting.Frame{Code: code, Version: 479, Opaque: c.opaque, Serialize: c.form, Body: []byte(body)}
	for i := 0; i < len(fields); i += 2 {
		f.Ext = append(f.Ext, remoting.Field{Name: fields[i], Value: fields[i+1]})
	}
	b, err := f.Append(nil)
	require.NoError(t, err)
	_, err = c.Write(b)
	require.NoError(t, err)
	answer, err := remoting.Read(c)
	require.NoError(t, err)
	assert.Equal(t, c.opaque, answer.Opaque)
	assert.True(t, answer.Response())
	assert.Equal(t, c.form, answer.Serialize, "in the form of the request")
	assert.EqualValues(t, 479, answer.Version)
	return answer
}

// field is a field of an answer.
func field(f *remoting.Frame, name string) string {
	value, _ := f.Ext.Get(name)
	return value
}

// TestNameServerCommandsOverTCP asks every command of a name server by frames
// that no client of ours has made.
func TestNameServerCommandsOverTCP(t *testing.T) {
	for form, name := range map[remoting.Serialize]string{remoting.JSON: "JSON", remoting.Binary: "binary"} {
		t.Run(name, func(t *testing.T) { nameServerCommands(t, form) })
	}
}

func nameServerCommands(t *testing.T, form remoting.Serialize) {
	dir := t.TempDir()
	c := run(t, pocketmq.ClusterConfig{Transport: pocketmq.TCP("127.0.0.1"), Dir: dir, Topics: map[string]int{"T": 4}})
	broker := c.Broker("broker-a", 0).Addr()
	conn := rawDial(t, c.NameServerAddrs()[0], form)
	ok := func(f *remoting.Frame) *remoting.Frame {
		t.Helper()
		require.Zero(t, f.Code, f.Remark)
		return f
	}
	refused := func(code int32, remark string, f *remoting.Frame) {
		t.Helper()
		assert.Equal(t, code, f.Code)
		assert.Contains(t, f.Remark, remark)
		assert.Empty(t, f.Body)
	}
	route := func(order string) string {
		if order != "" {
			order = fmt.Sprintf(`"orderTopicConf":%q,`, order)
		}
		return fmt.Sprintf(`{"brokerDatas":[{"brokerAddrs":{"0":%q},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},%s"queueDatas":[{"brokerName":"broker-a","perm":%%d,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}`, broker, order)
	}

	// 105, 106, 901
	assert.Equal(t, fmt.Sprintf(route(""), 6), string(ok(conn.ask(t, 105, "", "topic", "T", "acceptStandardJsonOnly", "true")).Body))
	refused(17, "No topic route info in name server for the topic: nobody's", conn.ask(t, 105, "", "topic", "nobody's"))
	assert.Equal(t, fmt.Sprintf(`{"brokerAddrTable":{"broker-a":{"brokerAddrs":{"0":%q},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}`, broker),
		string(ok(conn.ask(t, 106, "")).Body))
	assert.Equal(t, fmt.Sprintf(`{"brokerMemberGroup":{"brokerAddrs":{"0":%q},"brokerName":"broker-a","cluster":"DefaultCluster"}}`, broker),
		string(ok(conn.ask(t, 901, "", "clusterName", "DefaultCluster", "brokerName", "broker-a")).Body))
	assert.Equal(t, `{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"x","cluster":"y"}}`, string(ok(conn.ask(t, 901, "", "clusterName", "y", "brokerName", "x")).Body))

	// 100, 101, 102, 219
	refused(22, "No config item, Namespace: N Key: k", conn.ask(t, 101, "", "namespace", "N", "key", "k"))
	refused(22, "No config item, Namespace: N", conn.ask(t, 219, "", "namespace", "N"))
	ok(conn.ask(t, 100, "", "namespace", "N", "key", "k", "value", "v"))
	ok(conn.ask(t, 100, "", "namespace", "N", "key", "主题", "value", `"`))
	assert.Equal(t, "v", field(ok(conn.ask(t, 101, "", "namespace", "N", "key", "k")), "value"))
	assert.Equal(t, `{"table":{"k":"v","主题":"\""}}`, string(ok(conn.ask(t, 219, "", "namespace", "N")).Body))
	ok(conn.ask(t, 102, "", "namespace", "N", "key", "k"))
	ok(conn.ask(t, 102, "", "namespace", "N", "key", "k"))
	ok(conn.ask(t, 102, "", "namespace", "N", "key", "主题"))
	assert.Equal(t, `{"table":{}}`, string(ok(conn.ask(t, 219, "", "namespace", "N")).Body), "a namespace without keys")
	refused(1, "namespace or key is empty", conn.ask(t, 100, "", "namespace", "", "key", "k", "value", "v"))
	refused(1, "the field key is missing", conn.ask(t, 100, "", "namespace", "N", "value", "v"))

	// The order of a topic is in its route, and in the answer to a registration.
	ok(conn.ask(t, 100, "", "namespace", "ORDER_TOPIC_CONFIG", "key", "T", "value", "broker-a:4"))
	assert.Equal(t, fmt.Sprintf(route("broker-a:4"), 6), string(ok(conn.ask(t, 105, "", "topic", "T")).Body))
	second := rawDial(t, c.NameServerAddrs()[0], form)
	named := []string{"brokerName", "broker-z", "brokerAddr", "127.0.0.1:9", "clusterName", "other", "brokerId", "0"}
	registered := ok(second.ask(t, 103, `{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"timestamp":5},"topicConfigTable":{"X":{"perm":6,"readQueueNums":1,"topicName":"X","topicSysFlag":3,"writeQueueNums":1},"Y":{"perm":6,"readQueueNums":1,"topicName":"Y","topicSysFlag":2,"writeQueueNums":1}}}}`,
		append(named, "haServerAddr", "127.0.0.1:8", "enableActingMaster", "false", "__ZONE_NAME", "north")...))
	assert.Equal(t, `{"table":{"T":"broker-a:4"}}`, string(registered.Body))
	assert.Empty(t, registered.Ext)
	ok(conn.ask(t, 102, "", "namespace", "ORDER_TOPIC_CONFIG", "key", "T"))
	assert.Equal(t, fmt.Sprintf(route(""), 6), string(ok(conn.ask(t, 105, "", "topic", "T")).Body))

	// Zones.
	inZone := func(zone string) string {
		return string(ok(conn.ask(t, 105, "", "topic", "X", "__ZONE_MODE", "true", "__ZONE_NAME", zone)).Body)
	}
	assert.Equal(t, `{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:9"},"brokerName":"broker-z","cluster":"other","enableActingMaster":false,"zoneName":"north"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-z","perm":6,"readQueueNums":1,"topicSysFlag":3,"writeQueueNums":1}]}`, inZone("North"))
	assert.Equal(t, inZone("North"), string(ok(conn.ask(t, 105, "", "topic", "X")).Body))
	assert.Equal(t, `{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}`, inZone("south"))

	// 322, 904
	same := ok(second.ask(t, 322, `{"counter":1,"stateVersion":0,"timestamp":5}`, named...))
	assert.Equal(t, "false", field(same, "changed"))
	assert.Equal(t, `{"counter":1,"stateVersion":0,"timestamp":5}`, string(same.Body))
	assert.Equal(t, "true", field(ok(second.ask(t, 322, `{"counter":2,"timestamp":5}`, named...)), "changed"))
	ok(second.ask(t, 904, "", append(named, "heartbeatTimeoutMills", "10000")...))

	// 206, 224, 304, 311, 312, 313
	all := string(ok(conn.ask(t, 206, "")).Body)
	for _, topic := range []string{`"T"`, `"X"`, `"Y"`, `"TBW102"`} {
		assert.Contains(t, all, topic)
	}
	assert.True(t, strings.HasPrefix(all, `{"topicList":[`), all)
	assert.Equal(t, `{"topicList":["X","Y"]}`, string(ok(conn.ask(t, 224, "", "cluster", "other")).Body))
	assert.Equal(t, `{"topicList":[]}`, string(ok(conn.ask(t, 224, "", "cluster", "nobody's")).Body))
	assert.Equal(t, fmt.Sprintf(`{"brokerAddr":%q,"topicList":["DefaultCluster","broker-a","broker-z","other"]}`, broker), string(ok(conn.ask(t, 304, "")).Body))
	assert.Equal(t, `{"topicList":["X"]}`, string(ok(conn.ask(t, 311, "")).Body))
	assert.Equal(t, `{"topicList":["X","Y"]}`, string(ok(conn.ask(t, 312, "")).Body))
	assert.Equal(t, `{"topicList":["Y"]}`, string(ok(conn.ask(t, 313, "")).Body))

	// 217, 216
	share := `{"queueDatas":[{"brokerName":"broker-z","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2},{"brokerName":"broker-a","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2}]}`
	ok(conn.ask(t, 217, share, "topic", "R"))
	assert.Contains(t, string(ok(conn.ask(t, 105, "", "topic", "R")).Body), `"queueDatas":[{"brokerName":"broker-a"`)
	ok(conn.ask(t, 216, "", "topic", "R", "clusterName", "other"))
	assert.NotContains(t, string(ok(conn.ask(t, 105, "", "topic", "R")).Body), "broker-z")
	ok(conn.ask(t, 216, "", "topic", "R"))
	ok(conn.ask(t, 216, "", "topic", "R"))
	refused(17, "the topic: R", conn.ask(t, 105, "", "topic", "R"))
	ok(conn.ask(t, 217, "", "topic", "R"))
	refused(17, "the topic: R", conn.ask(t, 105, "", "topic", "R"))
	refused(29, "[ILLEGAL_NAME]", conn.ask(t, 217, share, "topic", "a/b"))

	// 205, 327
	assert.Equal(t, "2", field(ok(conn.ask(t, 205, "", "brokerName", "broker-z")), "wipeTopicCount"))
	assert.Contains(t, string(ok(conn.ask(t, 105, "", "topic", "X")).Body), `"perm":4`)
	assert.Equal(t, "2", field(ok(conn.ask(t, 327, "", "brokerName", "broker-z")), "addTopicCount"))
	assert.Contains(t, string(ok(conn.ask(t, 105, "", "topic", "X")).Body), `"perm":6`)
	assert.Equal(t, "0", field(ok(conn.ask(t, 205, "", "brokerName", "nobody's")), "wipeTopicCount"))
	assert.Equal(t, "0", field(ok(conn.ask(t, 327, "", "brokerName", "nobody's")), "addTopicCount"))

	// 104
	ok(second.ask(t, 104, "", named...))
	refused(17, "the topic: X", conn.ask(t, 105, "", "topic", "X"))

	// 319, 318: whatever is asked for, nothing changes and no file appears.
	settings := string(ok(conn.ask(t, 319, "")).Body)
	assert.Contains(t, settings, "orderMessageEnable=true\n")
	assert.NotContains(t, settings, dir)
	names := func() (names []string) {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	files, top := tree(t, filepath.Join(dir, "namesrv")), names()
	for _, body := range []string{"", "kvConfigPath=" + dir + "/kv.json\nconfigStorePath=" + dir + "/evil.properties\n", "orderMessageEnable=false\nserverWorkerThreads=0\n", "\x00\xff nonsense"} {
		refused(16, "the settings of ns-0 cannot be changed from outside", conn.ask(t, 318, body))
	}
	assert.Equal(t, settings, string(ok(conn.ask(t, 319, "")).Body))
	assert.Equal(t, files, tree(t, filepath.Join(dir, "namesrv")))
	assert.Equal(t, top, names())

	refused(3, " request type 25 not supported", conn.ask(t, 25, ""))
	refused(3, " request type 10 not supported", conn.ask(t, 10, ""))
}
