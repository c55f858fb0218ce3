package rmqtest

import (
	"time"

	"github.com/apache/rocketmq-client-go/v2"
)

// WaitForHandlers sets how long the Shutdown of c waits for its handlers.
func WaitForHandlers(c rocketmq.PushConsumer, d time.Duration) { c.(*pushConsumer).wait = d }
