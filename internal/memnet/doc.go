// Package memnet is the in-memory [protocol.Transport]: members of a cluster
// that live in one process call each other directly, over links that a test
// can cut, silence and slow down.
//
// A session is a pair of typed wrappers around the server's own connection
// object. A call runs on the caller's goroutine and costs two atomic additions
// and one small allocation over the bare method call while no fault rule
// exists. There are no goroutines, only timers for what a rule delays.
//
//	caller                     link                       server
//	brokerConn.SendMessage --> rules as the request leaves --> BrokerConn.SendMessage
//	                       <-- rules as the reply leaves   <--
//	Dial.Peer              <-- rules as the notice leaves  <-- Session.Peer
//
// # Names and addresses
//
// A node is whoever listens or dials under one name. A node that listens
// without an address gets an IPv4 literal of its own, 127.1.x.y, with the port
// RocketMQ uses (9876, 10911); it is a label only and the node keeps it when
// it closes and listens again. Callers get such a label as their born host.
// Where several live nodes share a name, each has an address of its own, but a
// rule that names a caller reaches all of that name.
//
// # Silence is silence
//
// A rule that loses what goes one way also loses the news that a side is gone:
// while a link is dropped, a killed server looks alive to its callers and a
// closed client looks alive to its server. The news arrives when the link is
// healed, as TCP's retransmission would bring it. [Network.Cut] is different:
// it resets, so both sides know at once.
//
// # Streams
//
// A stream is a pair of buffers under the same rules, each of 64 KiB: a writer
// waits for a slow reader. Here silence loses nothing for good, as TCP sends
// again what is not acknowledged: what leaves while the link is silent, news of
// the end included, is held by its sender and arrives after Heal. Where only the
// way back is silent bytes arrive, but their sender does not learn of it, and
// waits behind 64 KiB. [Network.Cut] resets: what is under way is lost.
//
// # What is not modelled
//
// Bandwidth, loss of single packets, and half-open connections after a crash
// of the network itself. A request that a silent link swallowed stays lost
// after Heal.
package memnet
