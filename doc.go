// Package pocketmq is an embeddable, single-process messaging library: a whole
// RocketMQ-style cluster as plain Go types.
//
// The types are those of the field. A [NameServer] holds routes. A [Broker]
// stores messages and serves them. A [Producer] picks a queue of a topic and
// sends there. A [Consumer] shares a topic's queues with the other members of
// its group and hands what it pulls to a handler. An [Admin] looks after
// topics. Brokers of one name are a group: a master and slaves that copy its log,
// of which one takes its place if the group elects. A [Cluster] wires them together, and kills and restarts its members
// on request. They talk through a [Transport]; [InMemory] is one inside the
// process, with links that can be broken, and [TCP] speaks RocketMQ's protocol.
//
//	c, err := pocketmq.StartCluster(ctx, pocketmq.ClusterConfig{Topics: map[string]int{"orders": 4}})
//	// handle err
//	defer c.Close()
//	_, err = c.StartConsumer(ctx, pocketmq.ConsumerConfig{
//		Group:         "billing",
//		Subscriptions: map[string]pocketmq.Filter{"orders": {}},
//		Handler:       func(ctx context.Context, msgs []*pocketmq.MessageExt) error { return nil },
//	})
//	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
//	_, err = p.Send(ctx, &pocketmq.Message{Topic: "orders", Body: []byte("hello")})
//
// All types have one life: New checks the config and starts nothing, Start
// returns when it serves, Close returns when nothing runs any more. Configs
// are structs; in numbers 0 is the default and -1 is none. Errors are told
// apart with errors.Is and the sentinels of this package; an error that a
// server answered also carries an [*Error].
//
// Only plain time is used, so inside a testing/synctest bubble everything that
// is timed runs in virtual time. Package mqtest starts clusters for tests.
package pocketmq
