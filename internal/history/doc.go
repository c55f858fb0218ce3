// Package history judges what clients of one broker group saw while members were
// killed and links were cut: whether what was acknowledged is there, and only once.
//
// A run writes a [History]: what was sent and answered, what consumers got, who was
// elected, and in the end the logs of all members. [Check] needs nothing else, so that
// a history which was saved can be judged again. It knows nothing of the brokers.
package history
