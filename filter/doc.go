// Package filter holds the expressions by which a subscription chooses
// messages. Tags is the tag expression of RocketMQ: "*" for everything, or a
// list as in "TagA || TagB".
//
// A tag is looked at twice, as in RocketMQ: the broker compares hashes
// (Tags.MatchCode), which costs no look at the message and lets a foreign tag
// of equal hash pass; the client compares texts (Tags.MatchTag) and drops
// those.
//
// Values are immutable and safe for concurrent use.
package filter
