// Package consume is the engine of consumers: it takes its share of a group's
// queues, or those that it is told, pulls them, hands messages to a handler, or to
// whoever polls, and commits offsets.
// Java: DefaultMQPushConsumerImpl, RebalanceImpl, PullMessageService,
// ProcessQueue, ConsumeMessageConcurrentlyService, RemoteBrokerOffsetStore,
// LocalFileOffsetStore. The files: workers.go calls handlers,
// verdict.go reads their errors, sendback.go gives failed messages back, retry.go
// keeps those that nobody took, overdue.go ends late deliveries.
//
//	notice, route, 20 s ──> rebalance loop ── take, drop ──> held queues
//	                                                            │ one pull goroutine each
//	            broker <── PullMessage (held up to 15 s) ───────┤
//	                                                            ▼
//	  retry heap ── due ──> process queue ── ready list ──> Concurrency workers ──> Handler
//	      ▲                       ▲                             │
//	      │                       ├────────── nil: ack ─────────┤
//	      │                  acknowledged                       │
//	   neither <── send-back, else send to %RETRY% <── error ───┘
//	                              │
//	                              │ lowest unfinished
//	            broker <── UpdateConsumerOffset (5 s, on every pull, on a drop, at the end)
//
// What was given back comes again by itself: a clustering engine consumes the
// group's retry topic beside those that its user subscribes to.
//
// A polled engine has no workers: Poll takes the messages from the process queues,
// and what is committed is how far its user has come.
//
// # What is guaranteed
//
//   - A committed offset never passes an unfinished message: it is the lowest
//     unfinished offset of the queue, or the end of what was received. A failed
//     message is finished when a broker has acknowledged its copy. When it is open
//     whether a broker has one, the message comes twice; it is never lost.
//   - A group without a committed offset starts where From says, for the queues
//     that the topic's route showed while Start, or the topic's Subscribe, ran. A
//     queue that appears later
//     starts at its minimum, whatever From says, so that nothing sent meanwhile
//     is skipped; with ConsumeFromTime it starts at that time, or at that of
//     Start if it is earlier. A start offset that From decided is committed at
//     once (0 only with ConsumeFromTime, as brokers answer it otherwise): a
//     member that takes the queue over does not decide anew.
//   - While handlers of a revoked queue still run, this client does not take the
//     same queue again.
//   - Rounds run one after the other, whatever asks for them. A queue taken anew
//     asks for its offset; nothing is left of the time before.
//   - Before a pull relies on a version of a subscription, its broker has had a
//     heartbeat with that version.
//   - Nothing polls. An engine whose pulls are held by brokers wakes for its own
//     timers only.
//
// # In order
//
// An orderly engine (ConsumeMessageOrderlyService) has one handler per queue at
// work. What fails stays in place: pq.back makes it ready again, and the queue is
// suspended for OrderlySuspend. In a clustering group:
//
//		round ── acquire ──> lock ──> start offset ──> held ── every LockRenew ──> renewed
//		                                                │
//		   revoked, handler has returned ── commit ── unlock ──> the next member
//
//	  - A handler starts, a pull is sent and an offset is committed only while the
//	    lock counts: see queueLock.
//	  - A lock that comes back after it was lost counts once the committed offset is
//	    known: what another member has finished meanwhile is passed over.
//	  - A queue is unlocked after its handler has returned and its offset was
//	    committed, never before; after a Close that gave up on a handler, not at all.
//
// # Where it differs from RocketMQ
//
//   - A lock ends with its connection, and with a change of the master's address,
//     not only with its age. One that was lost is asked for at once and then every
//     RebalanceRetry; Java waits 3 s. A queue whose lock another member has does
//     not delay Start.
//
//   - What a strategy answers is checked: a queue named twice, or one that is not
//     the topic's, is refused, and one of the user's making is asked for all
//     members' shares, to warn of gaps and overlaps. Java takes what it gets.
//
//   - Flow control waits for acknowledgements, woken by them; Java tries again
//     every 50 ms. A pull is sent only when a whole pull batch fits, so MaxCached
//     is never exceeded; Java exceeds it by one batch.
//
//   - Notices are served in the same instant; Java keeps 1 s between two rounds.
//     Notices that arrive during a round are served by one more round.
//
//   - PullOffsetMoved is handled in place: the queue goes on at the broker's
//     offset, at once. Java drops the queue and rebalances.
//
//   - A changed filter applies to what no handler has got yet; the queue is kept.
//
//   - A broadcasting member keeps the offsets of queues that it does not hold.
//
//   - Failed messages are given back by goroutines of their own, so that a silent
//     broker keeps no worker; Java does it on the consuming thread. What belongs
//     to a queue that was dropped meanwhile is left to the queue's next owner.
//
//   - The send that stands in for a send-back keeps the level that the handler
//     wished for, and makes dead letters; Java loses both wishes.
//
//   - A strategy that is not of package rebalance is not asked about the retry
//     topic, which is shared averagely then: one that does not expect it would
//     leave failed messages to nobody.
//
//   - A message that a handler has had for ConsumeTimeout is given back when its
//     time is up; Java looks every ConsumeTimeout, at 16 messages of a queue.
//
//   - The commit offset also passes what the broker has scanned without a match,
//     with the pull that reports it, not only with the next empty one.
//
//   - Cached messages are kept as stored records and decoded by the worker that
//     delivers them: every delivery is a fresh message.Ext, so a handler may keep
//     or change what it got.
//
//   - A record that does not decode is reported at error level, counted in
//     Status.Undecodable and passed over. It can never be delivered, and holding
//     it back would stop its queue for ever.
//
// # Locks
//
// Engine.mu guards the life of the engine, run.mu everything that moves while it
// runs. Nothing blocks, calls out or touches a channel under them. The subscriptions,
// the Pauses and a broadcasting member's offsets have locks of their own, which are
// leaves and may be taken under run.mu. Client.MasterAddr and Client.Current take
// none and may be called under it.
package consume
