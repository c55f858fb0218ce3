// Package mqtest runs clusters in tests.
//
//	func TestOrders(t *testing.T) {
//		c := mqtest.Run(t, pocketmq.ClusterConfig{Topics: map[string]int{"orders": 4}})
//		p, err := c.StartProducer(t.Context(), pocketmq.ProducerConfig{})
//		...
//	}
//
// [Run] costs about a millisecond. When the test ends it verifies what every
// test of a messaging system should: the stores are sound, also those of
// brokers that were killed, closing went well, and nothing of the cluster is
// left running. Tests may run in parallel, several clusters may run in one
// test, and goroutines that the test itself or other libraries leak do not
// matter.
//
// # Real time and virtual time
//
// RocketMQ's intervals are long: 20 s between rebalances, 30 s between route
// look-ups. Outside a testing/synctest bubble Run shortens them (see [Fast]).
// In a bubble time costs nothing, so there it keeps RocketMQ's defaults, and a
// test sees them exact to the nanosecond.
//
// The package imports testing: it is for test files only.
package mqtest
