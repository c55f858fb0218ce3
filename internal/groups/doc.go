// Package groups knows which clients are in which consumer and producer groups
// of a broker, and what is set for each consumer group. Java: ConsumerManager,
// ProducerManager, SubscriptionGroupManager.
//
// A client is in a group because its heartbeats say so, through a session (a
// connection), and leaves it by unregistering, by losing the session, or by
// staying silent. One client id is one member, even while two sessions claim
// it: the newest speaks for it, and when it ends, an older one that still lives
// does. That is how a client that reconnects before its old connection is seen
// closing stays in its groups without a rebalance.
//
// What callers have to announce comes back as Change values, so that nobody is
// called with a lock held. The time is a parameter. The Registry checks no
// names.
//
// Settings outlive members: a group has them from its first use until it is
// deleted, in config/subscriptionGroup.json.
package groups
