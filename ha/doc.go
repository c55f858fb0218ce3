// Package ha replicates a log from its master to slaves, and elects a master when
// there is none. It knows no messages and no files: a log is positions, epochs and
// records of bytes behind a small interface, a network is connections.
//
// # Terms
//
// A position counts the records of a log from 1, without gaps; the end of a log is
// its last position, 0 when it never had one. An epoch is the time of one master:
// each election begins the next, and every record belongs to the one in which it was
// written. Where two logs have parted is told by their histories of epochs, never by
// positions alone (see [Diverge]).
//
// # The log on its way
//
//	master                                             slave
//	Slaves.Serve   one goroutine per connection  <---  Receiver.Run  dials, follows
//	  hello: whose log is it, where did they part        one goroutine: reads,
//	  reads acks, tells InSync                           writes all that came, acks
//	  and one that writes: batches of whole records
//	Slaves.Written   wakes who waits for records
//	Slaves.Wait      until an answer rests on enough
//	                 acks; OnConfirmed as that grows
//
// A slave that connects tells the epochs of its log, and both sides find out by
// themselves what of it is also the master's. The rest is cut off; a log that is older
// than all that the master keeps begins anew. What was confirmed to a slave is never cut:
// it refuses, and says so. The master learns of the slave only what it has acknowledged,
// and it acknowledges what is as durable as it promised, never under an epoch lower than
// one that it has promised to follow.
//
// Silence of a side, in whichever way, ends a connection, and the slave dials again.
// Nothing polls. Reasons to end a connection are told to the other side, and are errors
// with names on both.
//
// Differs from RocketMQ: frames hold whole records with checksums; a slave is known by
// its id, and two connections of it are one slave; a slave that is ahead, behind or
// diverged is cut to its master's log, or refused with the numbers of both. Java:
// DefaultHAService, AutoSwitchHAService.
//
// Decisions are pure functions and state machines without clocks, goroutines and
// connections; what performs them is thin.
package ha
