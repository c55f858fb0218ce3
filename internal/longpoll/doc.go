// Package longpoll holds pulls that found nothing until a message arrives.
//
// A held pull is a goroutine blocked in [Waiters.Wait]; whoever stores messages
// calls [Waiters.Notify] for every one of them:
//
//	pull: read nothing -> Wait(topic, queue, offset) -> read again -> answer
//	send: append -> readable -> Notify(topic, queue, offset, tagsCode)
//
// A message that becomes readable between the read and the Wait is not missed:
// Wait looks once more after it has parked. So there is no scan, a wake-up is
// immediate, and a pull that nothing wakes ends exactly when its time is up.
//
// Java: PullRequestHoldService. Differs: there a held pull is a stored request
// and every 5 s all of them are looked at again, because a message may slip in
// between; here a goroutine costs little and a direct call and a network call
// behave the same.
//
// Notify is on the way of every message, so it costs one atomic load while
// nobody waits, and little more while others wait for other queues.
package longpoll
