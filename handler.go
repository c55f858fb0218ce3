package pocketmq

import "github.com/pocketmq/pocketmq/internal/consume"

// RetryAfter is what a Handler of a concurrent consumer returns to choose when
// the messages that failed come again: after the delay of a level, 1 being the
// first of the brokers' Timings.DelayLevels. A level above the last one means the
// last one; 0 and less is no wish: the level is 3 + ReconsumeTimes as without
// RetryAfter. The number of attempts stays limited by MaxReconsume. An orderly
// consumer tries again in place, whatever the level.
//
// The result carries err for errors.Is and errors.As; nil stays nil, so that
// "return RetryAfter(process(m), 5)" is right. Java:
// ConsumeConcurrentlyContext.setDelayLevelWhenNextConsume.
func RetryAfter(err error, delayLevel int) error { return consume.RetryAfter(err, delayLevel) }

// DeadLetter is what a Handler returns for messages that no further attempt can
// help: those that failed go to %DLQ%group at once. It outweighs a RetryAfter. The
// result carries err; nil stays nil. Java: setDelayLevelWhenNextConsume(-1).
func DeadLetter(err error) error { return consume.DeadLetter(err) }

// Done is what a Handler returns that has consumed the first n messages of its
// batch when the others failed with err. A count below 0 is 0, one above the
// batch is the batch, and then nothing has failed.
//
// It combines with the others, in any order of nesting: Done(2, DeadLetter(err))
// means two consumed messages and dead letters otherwise, Done(2, RetryAfter(err,
// 5)) that the others come again after level 5. Of two Done the outer one counts.
//
// The result carries err. Differs from the others: it is an error also without
// err, since messages that nobody reported as consumed must not be passed over.
// Java: ConsumeConcurrentlyContext.setAckIndex(n - 1).
func Done(n int, err error) error { return consume.Done(n, err) }
