package rmqtest

import (
	"sync"
	"sync/atomic"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/pocketmq/pocketmq"
)

// TraceTopic is where official clients send their traces. It is there from the
// start, with one queue.
const TraceTopic = "RMQ_SYS_TRACE_TOPIC"

// Trace configures message traces for producer.WithTrace and consumer.WithTrace,
// of clients made by this package: they go to TraceTopic of the client's cluster.
//
// Only synchronous sends may be traced, asynchronous and oneway ones are an error
// in the official client then. A traced client leaves the process one client more
// for ever, which all traces share.
func Trace() *primitive.TraceConfig {
	return &primitive.TraceConfig{Access: primitive.Local, Resolver: &tracing}
}

// tracing makes the one client that sends the traces of a process usable for
// every cluster: the official client refuses to share it between different name
// servers, and finds no difference while all of them have one resolver.
var tracing traceResolver

type traceResolver struct {
	making sync.Mutex               // held while a client is made, and its trace part with it
	last   atomic.Pointer[[]string] // the name servers of the client made last
}

// during calls create, which makes a client of c.
func (r *traceResolver) during(c *pocketmq.Cluster, create func()) {
	r.making.Lock()
	defer r.making.Unlock()
	addrs := c.NameServerAddrs()
	r.last.Store(&addrs)
	create()
}

func (r *traceResolver) Resolve() []string {
	if addrs := r.last.Load(); addrs != nil {
		return append([]string(nil), *addrs...) // the official client sorts what it gets
	}
	return nil
}

func (r *traceResolver) Description() string {
	return "the name servers of a PocketMQ cluster, for traces"
}
