package mqtest

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

const exampleProfile = `goroutine profile: total 9
2 @ 0x1 0x2
# labels: {"pocketmq-cluster":"MINE"}
#	0x1	github.com/pocketmq/pocketmq.every+0x44			/src/my mq/broker.go:17
#	0x2	github.com/pocketmq/pocketmq.(*Broker).open.func5+0x2a	/src/my mq/broker.go:9
#	0x3	sync.(*WaitGroup).Go.func1+0x2a				/go/src/sync/waitgroup.go:9

1 @ 0x1 0x2
# labels: {"pocketmq-cluster":"OTHER"}
#	0x1	github.com/pocketmq/pocketmq.every+0x44		/src/broker.go:17

1 @ 0x1 0x2
#	0x1	github.com/pocketmq/pocketmq.every+0x44		/src/broker.go:17

3 @ 0x1 0x2
# labels: {"pocketmq-cluster":"MINE", "test":"a"}
#	0x1	github.com/pocketmq/pocketmq.(*Producer).Send+0x44	/src/producer_send.go:17
#	0x2	example.com/app.handle.func1+0x44			/app/handle.go:17

1 @ 0x1 0x2
# labels: {"pocketmq-cluster":"MINE"}
#	0x1	github.com/pocketmq/pocketmq_test.TestX.func1+0x44	/src/x_test.go:17

1 @ 0x1 0x2
# labels: {"pocketmq-cluster":"MINE"}
#	0x1	github.com/pocketmq/pocketmq/internal/consume.TestX.func1+0x44	/src/internal/consume/x_test.go:17
`

func TestOnlyGoroutinesWithTheLabelThatThisModuleStartedCount(t *testing.T) {
	assert.Equal(t, []goroutines{{2, "\tgithub.com/pocketmq/pocketmq.every+0x44 /src/my mq/broker.go:17\n" +
		"\tgithub.com/pocketmq/pocketmq.(*Broker).open.func5+0x2a /src/my mq/broker.go:9\n" +
		"\tsync.(*WaitGroup).Go.func1+0x2a /go/src/sync/waitgroup.go:9"}}, labelled(exampleProfile, "MINE"))
	assert.Empty(t, labelled(exampleProfile, "NOBODY"))
}

func TestABubbleIsDetected(t *testing.T) {
	assert.False(t, inBubble())
	synctest.Test(t, func(t *testing.T) {
		assert.True(t, inBubble())
		done := make(chan bool)
		go func() { done <- inBubble() }()
		assert.True(t, <-done)
	})
	assert.False(t, inBubble())
}
