package rmqtest

import (
	"path/filepath"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
)

// WaitForHandlers sets how long the Shutdown of c waits for its handlers.
func WaitForHandlers(c rocketmq.PushConsumer, d time.Duration) { c.(*pushConsumer).wait = d }

// WaitForCallbacks sets how long the Shutdown of p waits for its callbacks.
func WaitForCallbacks(p rocketmq.Producer, d time.Duration) { p.(*lossless).wait = d }

// Offsets is what broadcasting consumers do that have their folders in root.
func Offsets(root string) (use func(folder string) (end func() error)) {
	f := offsetFolders{root: root}
	return func(folder string) func() error { return f.use(filepath.Join(root, folder)) }
}
