// Package rebalance shares the queues of a topic among the members of a
// consumer group.
//
// Nobody hands queues out: every member computes its own share from the same
// sorted queues and the same sorted members, and all of them come to results
// that fit together. That holds as long as they see the same lists and use the
// same Strategy. While their views differ a queue may have two owners or none
// for a moment; the next rebalance repairs it.
//
//	mine, err := rebalance.Averagely.Allocate(group, self, queues, members)
//	revoked, added := rebalance.Diff(held, mine)
//
// # Strategies
//
//	name                          made by             who gets what
//	AVG                           Averagely           contiguous blocks; the default
//	AVG_BY_CIRCLE                 AveragelyByCircle   one by one, as cards are dealt
//	CONSISTENT_HASH               ConsistentHash      few queues move when members change; uneven
//	MACHINE_ROOM                  MachineRoom         queues of some rooms only, even
//	MACHINE_ROOM_NEARBY-<inner>   MachineRoomNearby   each room's queues to its own members
//	CONFIG                        ByConfig            what the member's own list says
//
// Of these ByConfig and MachineRoom may leave queues to nobody, and ByConfig may
// give one to several. Any other Strategy can be written: a function of its
// arguments is enough. Verify runs one for every member and names the queues
// that nobody or more than one gets; consumers do that with strategies that are
// not BuiltIn whenever queues or members changed, and warn.
//
// Everything here is pure: no clock, no network, and no state but the rings that
// a ConsistentHash remembers, which no result depends on.
//
// # Groups that mix clients
//
// Shares are those of RocketMQ's Java client, queue by queue and in the same
// order; the tests compare them with its recorded answers. The official Go
// client answers otherwise in these cases, so groups that mix it with others
// should use AVG, AVG_BY_CIRCLE or CONFIG, where all agree:
//
//   - CONSISTENT_HASH: its ring is another one (stathat.com/c/consistent, CRC-32
//     instead of MD5), so nearly all shares differ.
//   - MACHINE_ROOM: it filters the queues by room, then takes that many from the
//     unfiltered list: members get queues of other rooms whenever those come
//     first.
//   - MACHINE_ROOM_NEARBY is plain AVG, and asks nobody for rooms.
//   - An empty client id, no queues and no members give an empty share there, an
//     error here and in Java.
package rebalance
