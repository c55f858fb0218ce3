package rmqtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/pocketmq/pocketmq"
)

// prepareWithin bounds what is asked of the cluster before a client starts.
const prepareWithin = 10 * time.Second

// Admin makes an official admin for t, which ends with it. It needs no start.
// Whatever goes wrong ends the test.
//
// It does not look at what brokers answer to CreateTopic and DeleteTopic: a nil
// error says that there was an answer.
func Admin(t testing.TB, c *pocketmq.Cluster, opts ...admin.AdminOption) admin.Admin {
	t.Helper()
	ready(t, c)
	all := []admin.AdminOption{
		ownConnections[admin.AdminOption](),
		admin.WithResolver(resolver{c}),
		instance[admin.AdminOption](instanceName(t)),
	}
	a, err := admin.NewAdmin(append(all, opts...)...)
	if err != nil {
		t.Fatalf("rmqtest: make an admin: %v", err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Errorf("rmqtest: close an admin: %v", err)
		}
	})
	return a
}

// Topic creates a topic with a name of its own and that many queues on every
// master, and returns the name. It is routable then: consumers that subscribe to
// it start. Whatever goes wrong ends the test.
func Topic(t testing.TB, c *pocketmq.Cluster, queues int) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), prepareWithin)
	defer cancel()
	name := uniqueName(t)
	if err := c.Admin().CreateTopic(ctx, pocketmq.TopicConfig{Name: name, ReadQueues: queues}); err != nil {
		t.Fatalf("rmqtest: %v", err)
	}
	return name
}

// ready ends the test when no official client can reach c, and lets t have the
// log of the clients.
func ready(t testing.TB, c *pocketmq.Cluster) {
	t.Helper()
	if c.Network() != nil {
		t.Fatalf(`rmqtest: the cluster is in memory, where official clients can't reach it: start it with ClusterConfig{Transport: pocketmq.TCP("127.0.0.1")}`)
	}
	logs.open(t)
}

// resolver gives the name servers of a cluster, those too that are added later.
type resolver struct{ cluster *pocketmq.Cluster }

func (r resolver) Resolve() []string   { return r.cluster.NameServerAddrs() }
func (r resolver) Description() string { return "the name servers of a PocketMQ cluster" }

var _ primitive.NsResolver = resolver{}

// instanceName returns a name that no client has yet, in this process or in
// another one that uses the same cluster. It says which test the client is of.
func instanceName(t testing.TB) string { return uniqueName(t) }

// uniqueName makes a name of t's own, of characters that are legal in topics,
// groups and folders.
func uniqueName(t testing.TB) string {
	legal := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, t.Name())
	return legal[:min(len(legal), maxTestName)] + "-" + rand.Text()[:10]
}

// maxTestName keeps names well below the 127 bytes of a topic, with prefixes
// like %RETRY% before them.
const maxTestName = 80

// The options of the official client are functions of structs that it does not
// export. Inference gives their types a name here, and reflection their exported
// fields.

// field returns a field of an option struct.
func field[O any](options *O, name string) reflect.Value {
	f := reflect.ValueOf(options).Elem().FieldByName(name)
	if !f.IsValid() {
		panic(fmt.Sprintf("rmqtest: %T of this version of the official client has no field %s: use the version that rmqtest's go.mod names", *options, name))
	}
	return f
}

// ownConnections is an option that lets a client have its own copy of the
// connection settings: WithTls and WithRemotingTimeout write to the copy that
// all clients of the process share.
func ownConnections[F ~func(*O), O any]() F {
	return func(options *O) {
		shared := field(options, "RemotingClientConfig")
		own := reflect.New(shared.Type().Elem())
		own.Elem().Set(shared.Elem())
		shared.Set(own)
	}
}

// instance is the option WithInstanceName, where the client has none.
func instance[F ~func(*O), O any](name string) F {
	return func(options *O) { field(options, "InstanceName").SetString(name) }
}

// settings are what a client was made with.
type settings struct {
	ip, instance, unit string // what a client id is made of
	resolver           primitive.NsResolver
	group, namespace   string
	broadcasting       bool                 // of a consumer
	sendTimeout        time.Duration        // of a producer
	traces             interface{ Close() } // nil without traces
}

// endTraces ends what sends the traces of a client that never started: the Shutdown
// that would do it panics then, or ends clients of others.
func (s *settings) endTraces() {
	if s.traces != nil {
		s.traces.Close()
	}
}

func (s *settings) clientID() string {
	id := s.ip + "@" + s.instance
	if s.unit != "" {
		id += "@" + s.unit
	}
	return id
}

// sameClient is an option that makes another face of the client that was made with
// s: the official client shares one among all that have the same id.
func sameClient[F ~func(*O), O any](s *settings) F {
	return func(options *O) {
		field(options, "ClientIP").SetString(s.ip)
		field(options, "InstanceName").SetString(s.instance)
		field(options, "UnitName").SetString(s.unit)
		field(options, "Resolver").Set(reflect.ValueOf(s.resolver))
	}
}

// readSettings is an option that stores what the options before it have set.
func readSettings[F ~func(*O), O any](into *settings) F {
	return func(options *O) {
		into.ip = field(options, "ClientIP").String()
		into.instance = field(options, "InstanceName").String()
		into.unit = field(options, "UnitName").String()
		into.resolver, _ = field(options, "Resolver").Interface().(primitive.NsResolver)
		into.group = field(options, "GroupName").String()
		into.namespace = field(options, "Namespace").String()
		if dispatcher := field(options, "TraceDispatcher"); dispatcher.IsNil() || dispatcher.Elem().IsNil() {
			into.traces = nil
		} else {
			into.traces = dispatcher.Interface().(interface{ Close() })
		}
		if timeout := reflect.ValueOf(options).Elem().FieldByName("SendMsgTimeout"); timeout.IsValid() { // a consumer has none
			into.sendTimeout = time.Duration(timeout.Int())
		}
		if model := reflect.ValueOf(options).Elem().FieldByName("ConsumerModel"); model.IsValid() { // a producer has none
			into.broadcasting = consumer.MessageModel(model.Int()) == consumer.BroadCasting
		}
	}
}
