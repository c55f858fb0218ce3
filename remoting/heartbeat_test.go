package remoting

import (
	"strings"
	"testing"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHeartbeatsOfTheGoClient(t *testing.T) {
	q, err := heartbeat().decodeRequest(&Frame{Language: LanguageGo, Version: 317, Body: []byte(`{"consumerDataSet":[{"groupName":"G","consumeType":"CONSUME_PASSIVELY","messageModel":"BROADCASTING","consumeFromWhere":"UNKNOWN",` +
		`"subscriptionDataSet":[{"topic":"T","subString":"é || b","tagsSet":["é","b"],"codeSet":["1","98"],"expressionType":"TAG","subVersion":1700000000000000000},{"topic":"U","subString":"*","tagsSet":[],"codeSet":[]}],"unitMode":false}],` +
		`"clientID":"10.0.0.1@5","producerDataSet":[]}`)})
	require.NoError(t, err)
	assert.Equal(t, &protocol.HeartbeatRequest{ClientID: "10.0.0.1@5", Language: "GO", Version: 317, Consumers: []protocol.ConsumerData{{
		Group: "G", Model: protocol.Broadcasting, Passive: true, Subscriptions: []protocol.Subscription{
			{Topic: "T", Expression: "é || b", ExpressionType: "TAG", Tags: []string{"é", "b"}, Codes: []int32{233, 98}, Version: 1700000000000000000},
			{Topic: "U", Expression: "*", ExpressionType: "TAG"},
		},
	}}}, q, "the codes of tags are those of stored messages")
	for _, body := range []string{"", "[]", "null", "5", "{"} {
		_, err = heartbeat().decodeRequest(&Frame{Body: []byte(body)})
		assert.Error(t, err, body)
	}
	_, err = heartbeat().decodeRequest(&Frame{Body: []byte(`{"clientID":` + strings.Repeat("[", 1000))})
	assert.Error(t, err)
}
