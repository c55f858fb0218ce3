package java

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/mqtest"
)

// tool is a command of mqadmin.
type tool struct {
	name string
	code int      // request code that it needs and that is not served; 0 = it works
	runs []string // lines that are run one after another
	want []string // what they print in all: regular expressions
}

// In the lines, words in capitals stand for what is known only then.
var tools = []tool{
	{"addWritePerm", 0, []string{"wipeWritePerm -b broker-b", "topicRoute -t T2", "addWritePerm -b broker-b", "topicRoute -t T2"}, []string{`"perm":4`, `"perm":6`}},
	{"allocateMQ", 0, []string{"allocateMQ -t T -i a,b"}, []string{`"result":`, `"queueId":3`}},
	{"brokerConsumeStats", 317, []string{"brokerConsumeStats -b BROKER"}, nil},
	{"brokerStatus", 28, []string{"brokerStatus -b BROKER"}, nil},
	{"checkMsgSendRT", 0, []string{"checkMsgSendRT -t Sent -a 3 -s 10"}, []string{`broker-a +0 +true`}},
	{"cleanExpiredCQ", 306, []string{"cleanExpiredCQ -b BROKER"}, nil},
	{"cleanUnusedTopic", 316, []string{"cleanUnusedTopic -b BROKER"}, nil},
	{"cloneGroupOffset", 0, []string{"updateSubGroup -c DefaultCluster -g Clone", "cloneGroupOffset -s G_T -d Clone -t T -o true"}, []string{`clone group offset success`}},
	{"clusterList", 28, []string{"clusterList"}, []string{`broker-a +0 +BROKER`}},
	{"consumeMessage", 0, []string{"consumeMessage -t T -c 2"}, []string{`Consume ok`}},
	{"consumerConnection", 0, []string{"consumerConnection -g G_T"}, []string{`CLIENT +127\.0\.0\.1:\d+ +JAVA +V5_3_3`, `T +\*`, `CLUSTERING`}},
	{"consumerProgress", 0, []string{"consumerProgress -g G_T", "consumerProgress", "consumerProgress -g G_T -s true"}, []string{`T +broker-a +3 +2 +2`, `G_T +1 +V5_3_3 +PUSH +CLUSTERING`, `Consume Diff Total: 0`}},
	{"consumerStatus", 0, []string{"consumerStatus -g G_T", "consumerStatus -g G_T -i CLIENT", "consumerStatus -g G_T -i CLIENT -s"}, []string{`CLIENT +V5_3_3`, `Rebalance OK`, `PROP_CONSUME_TYPE +: CONSUME_PASSIVELY`, `001 Topic: `, `TID: `}},
	{"deleteExpiredCommitLog", 329, []string{"deleteExpiredCommitLog -b BROKER"}, nil},
	{"deleteKvConfig", 0, []string{"updateKvConfig -s Space -k two -v v", "deleteKvConfig -s Space -k two"}, []string{`create or update kv config to namespace success`, `delete kv config from namespace success`}},
	{"deleteSubGroup", 0, []string{"updateSubGroup -c DefaultCluster -g Gone", "deleteSubGroup -c DefaultCluster -g Gone"}, []string{`delete subscription group \[Gone\] from broker \[BROKER\]`}},
	{"deleteTopic", 0, []string{"updateTopic -c DefaultCluster -t Gone -r 3 -w 3", "deleteTopic -c DefaultCluster -t Gone", "topicRoute -t Gone"}, []string{`delete topic \[Gone\] from cluster \[DefaultCluster\] success`, `from NameServer success`, `CODE: 17`}},
	{"exportConfigs", 26, []string{"exportConfigs -c DefaultCluster -f FOLDER"}, nil},
	{"exportMetadata", 305, []string{"exportMetadata -c DefaultCluster -f FOLDER"}, nil},
	{"getBrokerConfig", 26, []string{"getBrokerConfig -b BROKER"}, nil},
	{"getConsumerConfig", 0, []string{"getConsumerConfig -g G_T"}, []string{`groupName +=  G_T`, `retryMaxTimes +=  16`}},
	{"getNamesrvConfig", 0, []string{"getNamesrvConfig"}, []string{`SRVADDR`, `orderMessageEnable += +true`}},
	{"haStatus", 0, []string{"haStatus -b BROKER"}, []string{`MasterCommitLogMaxOffset`}},
	{"printMsg", 0, []string{"printMsg -t T"}, []string{`MSGID: UNIQUE`}},
	{"printMsgByQueue", 0, []string{"printMsgByQueue -t T -a broker-a -i 0 -p true"}, []string{`MSGID: `}},
	{"producer", 328, []string{"producer -b BROKER"}, nil},
	{"producerConnection", 204, []string{"producerConnection -g P -t T"}, nil},
	{"queryCq", 321, []string{"queryCq -t T -q 0 -i 0 -c 3 -b BROKER"}, nil},
	{"queryMsgById", 300, []string{"queryMsgById -t T -i OFFSETID", "queryMsgById -t T -i OFFSETID -g G_T -d CLIENT"}, []string{`OffsetID: +OFFSETID`, `consumeResult=CR_SUCCESS`}},
	{"queryMsgByKey", 0, []string{"queryMsgByKey -t T -k key"}, []string{`UNIQUE +\d +1`}},
	{"queryMsgByOffset", 300, []string{"queryMsgByOffset -t T -b broker-a -i 0 -o 0"}, []string{`Queue Offset: +0`, `Keys: +\[key\]`}},
	{"queryMsgByUniqueKey", 300, []string{"queryMsgByUniqueKey -t T -i UNIQUE"}, []string{`UNIQ_KEY=UNIQUE`, `Keys: +\[key\]`}},
	{"resetOffsetByTime", 0, []string{"resetOffsetByTime -g Reset -t Sent -s now", "resetOffsetByTime -g Reset -t Sent -s 0 -c DefaultCluster"}, []string{`broker-a +0 +0`}},
	{"sendMessage", 0, []string{"sendMessage -t Sent -p body -k key -c tag"}, []string{`broker-a +\d +SEND_OK`}},
	{"sendMsgStatus", 0, []string{"sendMsgStatus -b broker-a -s 10 -c 2"}, []string{`sendStatus=SEND_OK`}},
	{"setConsumeMode", 401, []string{"setConsumeMode -c DefaultCluster -t T -g G_T -m PULL -q 0"}, nil},
	{"skipAccumulatedMessage", 0, []string{"skipAccumulatedMessage -g Reset -t Sent"}, []string{`broker-a +0 +\d`}},
	{"statsAll", 300, []string{"statsAll"}, []string{`#Topic`}},
	{"topicClusterList", 0, []string{"topicClusterList -t T"}, []string{`DefaultCluster`}},
	{"topicList", 0, []string{"topicList"}, []string{`(?m)^T$`, `(?m)^TBW102$`}},
	{"topicRoute", 0, []string{"topicRoute -t T"}, []string{`"BROKER"`, `"readQueueNums":4`}},
	{"topicStatus", 0, []string{"topicStatus -t T"}, []string{`broker-a +3 +0 +2 `}},
	{"updateBrokerConfig", 25, []string{"updateBrokerConfig -b BROKER -k brokerPermission -v 6"}, nil},
	{"updateKvConfig", 0, []string{"updateKvConfig -s Space -k k -v v"}, []string{`create or update kv config to namespace success`}},
	{"updateNamesrvConfig", 0, []string{"updateNamesrvConfig -k a -v b"}, []string{`CODE: 16 `}},
	{"updateOrderConf", 0, []string{"updateOrderConf -m put -t T -v broker-a:4", "updateOrderConf -m get -t T", "updateOrderConf -m delete -t T"}, []string{`orderConf=\[broker-a:4\]`, `delete orderConf success`}},
	{"updateSubGroup", 0, []string{"updateSubGroup -b BROKER -g Made -r 3", "getConsumerConfig -g Made"}, []string{`create subscription group to BROKER success`, `retryMaxTimes +=  3`}},
	{"updateSubGroupList", 0, []string{"updateSubGroupList -c DefaultCluster -f FOLDER/groups.json", "getConsumerConfig -g Listed"}, []string{`retryMaxTimes +=  5`}},
	{"updateTopic", 0, []string{"updateTopic -c DefaultCluster -t Made -r 3 -w 3", "updateTopic -b BROKER -t Ordered -r 2 -w 2 -o true", "topicRoute -t Made"}, []string{`create topic to BROKER success`, `topicName=Ordered.*order=true`, `"readQueueNums":3`}},
	{"updateTopicList", 0, []string{"updateTopicList -c DefaultCluster -f FOLDER/topics.json", "topicRoute -t Listed"}, []string{`"readQueueNums":5`}},
	{"updateTopicPerm", 0, []string{"updateTopic -b BROKER -t Perm -r 3 -w 3", "updateTopicPerm -b BROKER -t Perm -p 4"}, []string{`update topic perm from 6 to 4 in BROKER success`}},
	{"wipeWritePerm", 0, []string{"wipeWritePerm -b broker-c"}, []string{`wipe write perm of broker\[broker-c\] in name server\[SRVADDR\] OK`}},
}

// TestMqadmin: each command does what it says, or fails with the code that the
// manual says.
func TestMqadmin(t *testing.T) {
	needKit(t)
	c := mqtest.Run(t, pocketmq.ClusterConfig{
		Transport: pocketmq.TCP("127.0.0.1"), Groups: []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b"}, {Name: "broker-c"}},
	})
	for _, topic := range []pocketmq.TopicConfig{
		{Name: "T", ReadQueues: 4, Brokers: []string{"broker-a"}}, {Name: "Sent", ReadQueues: 4, Brokers: []string{"broker-a"}}, {Name: "T2", ReadQueues: 4, Brokers: []string{"broker-b"}},
	} {
		require.NoError(t, c.Admin().CreateTopic(t.Context(), topic))
	}
	l := &lab{c, startJVM(t, c.NameServerAddrs(), "-Xmx512m")}
	p, err := c.StartProducer(t.Context(), pocketmq.ProducerConfig{Group: "P"})
	require.NoError(t, err)
	var last *pocketmq.SendResult
	for range 8 {
		last, err = p.Send(t.Context(), &pocketmq.Message{Topic: "T", Keys: []string{"key"}, Tag: "tag", Body: []byte("body")})
		require.NoError(t, err)
	}
	require.NoError(t, c.Admin().CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "Reset"}))
	id := l.jvm.run(t, "start", "T", "T")
	require.NoError(t, l.WaitGroup(t.Context(), "G_T", func(g pocketmq.GroupStatus) bool { return committed(g, "T") == 8 }))
	folder := t.TempDir()
	for name, text := range map[string]string{
		"topics.json": `[{"topicName":"Listed","readQueueNums":5,"writeQueueNums":5,"perm":6}]`,
		"groups.json": `[{"groupName":"Listed","retryMaxTimes":5}]`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	words := func(quote func(string) string) *strings.Replacer {
		return strings.NewReplacer(
			"BROKER", quote(c.Broker("broker-a", 0).Addr()), "SRVADDR", quote(c.NameServerAddrs()[0]), "FOLDER", quote(folder),
			"OFFSETID", quote(last.OffsetMsgID), "UNIQUE", quote(last.MsgID), "CLIENT", quote(id))
	}
	lines, patterns := words(func(s string) string { return s }), words(regexp.QuoteMeta)
	for _, tool := range tools {
		t.Run(tool.name, func(t *testing.T) {
			t.Parallel()
			summary(t, "mqadmin/"+tool.name)
			var all strings.Builder
			for _, line := range tool.runs {
				args := append(strings.Fields(lines.Replace(line)), "-n", c.NameServerAddrs()[0])
				fmt.Fprintf(&all, "$ mqadmin %s\n%s\n", line, l.jvm.run(t, "mqadmin", args...))
			}
			refused := regexp.MustCompile(`request type (\d+) not supported`).FindAllStringSubmatch(all.String(), -1)
			if tool.code == 0 {
				assert.Empty(t, refused)
			}
			for _, code := range refused {
				assert.Equal(t, fmt.Sprint(tool.code), code[1])
			}
			if tool.code != 0 && tool.name != "statsAll" { // that one does not say so
				assert.NotEmpty(t, refused, "it works: tools and docs/interop-java.md have to say so")
			}
			for _, want := range tool.want {
				assert.Regexp(t, patterns.Replace(want), all.String())
			}
		})
	}
}

// TestMqadminTable: the manual says of each command what the tests have shown.
func TestMqadminTable(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash("../../docs/interop-java.md"))
	require.NoError(t, err)
	told := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (yes|no|in part) \\|(.*)\\|$").FindAllStringSubmatch(string(text), -1) {
		told[row[1]] = row[2] + row[3]
	}
	assert.Len(t, told, len(tools))
	for _, tool := range tools {
		switch row := told[tool.name]; {
		case tool.code == 0:
			assert.Regexp(t, `^yes`, row, tool.name)
		case tool.want == nil:
			assert.Regexp(t, fmt.Sprintf(`^no.* %d\b`, tool.code), row, tool.name)
		default:
			assert.Regexp(t, fmt.Sprintf(`^in part.* %d\b`, tool.code), row, tool.name)
		}
	}
}
