// Package rmqtest runs the official RocketMQ Go client
// (github.com/apache/rocketmq-client-go/v2) against a PocketMQ cluster, in
// tests.
//
//	func TestOrders(t *testing.T) {
//		c := mqtest.Run(t, pocketmq.ClusterConfig{Transport: pocketmq.TCP("127.0.0.1")})
//		topic := rmqtest.Topic(t, c, 4)
//		p := rmqtest.Producer(t, c)
//		_, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte("paid")))
//		...
//	}
//
// The clients are the official ones, unchanged. The package takes care of what
// bites when several of them live in one test binary:
//
//   - Clients of one process share a table, by client id, which is the same for
//     all that have no instance name: the second producer of a process talks to
//     the first one's cluster, or cannot be made. Here every client has an
//     instance name of its own.
//   - A client that asks for TLS, or for other timeouts, changes a global
//     variable, and so all clients that come later. Here each has its own copy.
//   - A consumer whose topic has no route does not start, leaves 18 goroutines
//     behind, and cannot be started again. Here it says first what is missing, and
//     may be started again, whatever it failed of.
//   - A consumer of a new group learns of the group's retry topic half a minute
//     after its start, and delivers nothing again before that. Here the topic
//     exists before the consumer starts.
//   - What a producer has sent oneway right before its Shutdown may be lost in its
//     own system. Here Shutdown first makes sure that the brokers have read it.
//   - Asynchronous sends that have no answer yet at Shutdown get an error of the
//     connection, or none. Here Shutdown waits for their callbacks.
//   - Shutdown does not wait for handlers that run, which then use a test that
//     has ended, and panics when the consumer was never started, or failed to
//     start. Here it does and does not.
//   - A broadcasting consumer keeps its offsets in the home folder. Here they go
//     with the test.
//   - The log goes to standard error, all of it. Here it is kept, and shown by a
//     test that fails.
//
// Clients end with their test: the last one made ends first, and all of them
// before a cluster of package mqtest. Everything works under t.Parallel.
//
// What stays behind all the same: the official client has goroutines that sleep
// before they look whether they should end. A producer leaves two, for 10 s; a
// push consumer these, one for each pull that was held, for the rest of its 30 s,
// one for 15 minutes (its ConsumeTimeout) and 15 of its statistics, of which five
// each end with the minute, the hour and the month. They hold no connections and do
// nothing.
//
// The package imports testing: it is for test files only.
package rmqtest
