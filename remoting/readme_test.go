package remoting

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the table of request codes to README.md")

// requestCode is a request of RocketMQ 5.3. Java: RequestCode.
type requestCode struct {
	code protocol.Code
	name string
}

// requestCodes are the requests that each kind of server, and clients, may get in
// RocketMQ, as far as there is anything to say about them here.
func requestCodes() (brokers, nameServers, clients []requestCode) {
	brokers = []requestCode{
		{10, "SEND_MESSAGE"}, {11, "PULL_MESSAGE"}, {12, "QUERY_MESSAGE"}, {14, "QUERY_CONSUMER_OFFSET"}, {15, "UPDATE_CONSUMER_OFFSET"},
		{17, "UPDATE_AND_CREATE_TOPIC"}, {18, "UPDATE_AND_CREATE_TOPIC_LIST"}, {21, "GET_ALL_TOPIC_CONFIG"}, {25, "UPDATE_BROKER_CONFIG"},
		{26, "GET_BROKER_CONFIG"}, {28, "GET_BROKER_RUNTIME_INFO"}, {29, "SEARCH_OFFSET_BY_TIMESTAMP"}, {30, "GET_MAX_OFFSET"}, {31, "GET_MIN_OFFSET"},
		{32, "GET_EARLIEST_MSG_STORETIME"}, {33, "VIEW_MESSAGE_BY_ID"}, {34, "HEART_BEAT"}, {35, "UNREGISTER_CLIENT"}, {36, "CONSUMER_SEND_MSG_BACK"},
		{37, "END_TRANSACTION"}, {38, "GET_CONSUMER_LIST_BY_GROUP"}, {41, "LOCK_BATCH_MQ"}, {42, "UNLOCK_BATCH_MQ"}, {43, "GET_ALL_CONSUMER_OFFSET"},
		{45, "GET_ALL_DELAY_OFFSET"}, {46, "CHECK_CLIENT_CONFIG"}, {60, "GET_TIMER_CHECK_POINT"}, {61, "GET_TIMER_METRICS"},
		{200, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP"}, {201, "GET_ALL_SUBSCRIPTIONGROUP_CONFIG"}, {202, "GET_TOPIC_STATS_INFO"},
		{203, "GET_CONSUMER_CONNECTION_LIST"}, {204, "GET_PRODUCER_CONNECTION_LIST"}, {207, "DELETE_SUBSCRIPTIONGROUP"}, {208, "GET_CONSUME_STATS"},
		{215, "DELETE_TOPIC_IN_BROKER"}, {222, "INVOKE_BROKER_TO_RESET_OFFSET"}, {223, "INVOKE_BROKER_TO_GET_CONSUMER_STATUS"},
		{225, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST"}, {300, "QUERY_TOPIC_CONSUME_BY_WHO"}, {303, "QUERY_CONSUME_TIME_SPAN"},
		{305, "GET_SYSTEM_TOPIC_LIST_FROM_BROKER"}, {306, "CLEAN_EXPIRED_CONSUMEQUEUE"}, {307, "GET_CONSUMER_RUNNING_INFO"}, {309, "CONSUME_MESSAGE_DIRECTLY"},
		{310, "SEND_MESSAGE_V2"}, {314, "CLONE_GROUP_OFFSET"}, {315, "VIEW_BROKER_STATS_DATA"}, {316, "CLEAN_UNUSED_TOPIC"}, {317, "GET_BROKER_CONSUME_STATS"},
		{320, "SEND_BATCH_MESSAGE"}, {321, "QUERY_CONSUME_QUEUE"}, {323, "RESUME_CHECK_HALF_MESSAGE"}, {324, "SEND_REPLY_MESSAGE"}, {325, "SEND_REPLY_MESSAGE_V2"},
		{328, "GET_ALL_PRODUCER_INFO"}, {329, "DELETE_EXPIRED_COMMITLOG"}, {343, "QUERY_TOPICS_BY_CONSUMER"}, {345, "QUERY_SUBSCRIPTION_BY_CONSUMER"},
		{351, "GET_TOPIC_CONFIG"}, {361, "LITE_PULL_MESSAGE"}, {370, "RECALL_MESSAGE"}, {513, "UPDATE_AND_CREATE_STATIC_TOPIC"}, {905, "NOTIFY_MIN_BROKER_ID_CHANGE"},
		{906, "EXCHANGE_BROKER_HA_INFO"}, {907, "GET_BROKER_HA_STATUS"}, {1007, "GET_BROKER_EPOCH_CACHE"},
		{200050, "POP_MESSAGE"}, {200051, "ACK_MESSAGE"}, {200052, "PEEK_MESSAGE"}, {200053, "CHANGE_MESSAGE_INVISIBLETIME"}, {200054, "NOTIFICATION"},
		{200055, "POLLING_INFO"}, {200151, "BATCH_ACK_MESSAGE"},
	}
	nameServers = []requestCode{
		{100, "PUT_KV_CONFIG"}, {101, "GET_KV_CONFIG"}, {102, "DELETE_KV_CONFIG"}, {103, "REGISTER_BROKER"}, {104, "UNREGISTER_BROKER"},
		{105, "GET_ROUTEINFO_BY_TOPIC"}, {106, "GET_BROKER_CLUSTER_INFO"}, {205, "WIPE_WRITE_PERM_OF_BROKER"}, {206, "GET_ALL_TOPIC_LIST_FROM_NAMESERVER"},
		{216, "DELETE_TOPIC_IN_NAMESRV"}, {217, "REGISTER_TOPIC_IN_NAMESRV"}, {219, "GET_KVLIST_BY_NAMESPACE"}, {224, "GET_TOPICS_BY_CLUSTER"},
		{304, "GET_SYSTEM_TOPIC_LIST_FROM_NS"}, {311, "GET_UNIT_TOPIC_LIST"}, {312, "GET_HAS_UNIT_SUB_TOPIC_LIST"}, {313, "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST"},
		{318, "UPDATE_NAMESRV_CONFIG"}, {319, "GET_NAMESRV_CONFIG"}, {322, "QUERY_DATA_VERSION"}, {327, "ADD_WRITE_PERM_OF_BROKER"},
		{901, "GET_BROKER_MEMBER_GROUP"}, {904, "BROKER_HEARTBEAT"},
	}
	clients = []requestCode{
		{39, "CHECK_TRANSACTION_STATE"}, {40, "NOTIFY_CONSUMER_IDS_CHANGED"}, {220, "RESET_CONSUMER_CLIENT_OFFSET"}, {221, "GET_CONSUMER_STATUS_FROM_CLIENT"},
		{307, "GET_CONSUMER_RUNNING_INFO"}, {309, "CONSUME_MESSAGE_DIRECTLY"}, {326, "PUSH_REPLY_MESSAGE_TO_CLIENT"},
	}
	return brokers, nameServers, clients
}

// codesTable lists codes with yes for those that have a row.
func codesTable[S any](t *testing.T, to string, known []requestCode, rows []row[S]) string {
	t.Helper()
	served := tableOf(rows)
	var b strings.Builder
	for i, c := range known {
		require.False(t, i > 0 && c.code <= known[i-1].code, "%d: sorted, and each once", c.code)
		answer := "no"
		if served[c.code] != nil {
			answer = "yes"
		}
		if c.code == protocol.CodeUpdateNameServerConfig {
			answer = "always refused" // that is what its row is for
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", c.code, c.name, to, answer)
		delete(served, c.code)
	}
	for code, r := range served {
		t.Errorf("%s: code %d of %s has no name here: say what RocketMQ calls it", to, code, r.title())
	}
	return b.String()
}

// TestREADMEListsEveryCode: the table in README.md is made of the rows. -update
// writes it.
func TestREADMEListsEveryCode(t *testing.T) {
	const file, begin, end = "../README.md", "<!-- codes: made by go test ./remoting -run TestREADMEListsEveryCode -update -->\n", "<!-- end of codes -->\n"
	brokers, nameServers, clients := requestCodes()
	table := "| Code | Request | To | Served |\n|---|---|---|---|\n" +
		codesTable(t, "broker", brokers, brokerRows()) +
		codesTable(t, "name server", nameServers, nameServerRows()) +
		codesTable(t, "client", clients, peerRows())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok, "%s has no %q", file, begin)
	have, after, ok := strings.Cut(rest, end)
	require.True(t, ok, "%s has no %q", file, end)
	want := "\n" + table + "\n"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(before+begin+want+end+after), 0o644))
		return
	}
	assert.Equal(t, want, have, "README.md is stale: go test ./remoting -run TestREADMEListsEveryCode -update")
}
