// Package delay delivers messages that wait for a delay level to be over: those
// sent with one, and failed messages that are to be tried again. Java:
// ScheduleMessageService.
//
//	Defer -> message.ScheduleTopic, queue level - 1 -> Service -> Restore -> real topic
//
// Each level is a queue of the store, and all messages of a level wait for the
// same time, so only the first one of each has to be watched. Schedule is that as
// a value: which level has to be looked at next, and when. Service is the one
// goroutine with one timer that does it. Nothing polls.
//
// # What a crash leaves
//
// Progress is the offset of each level up to which messages were delivered. It is
// saved after the copies were synced, so it is never ahead of them: what a crash
// takes is delivered again, and nothing is lost. A progress that does not fit its
// queue is moved into it.
//
// Differs: the reference saves its progress on a clock of its own, so that a
// crash may lose messages; it looks at each level every 100 ms.
package delay
