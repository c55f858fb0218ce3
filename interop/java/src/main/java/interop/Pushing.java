package interop;

import static interop.Clients.check;
import static interop.Clients.equal;

import java.text.SimpleDateFormat;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** What push consumers do. The first argument of each is its topic, the group is G_ and the topic. */
final class Pushing {
    private final Clients clients;
    private final Map<String, Running> running = new ConcurrentHashMap<>();

    private static final class Running {
        DefaultMQPushConsumer consumer;
        Received got;
    }

    Pushing(Clients clients) {
        this.clients = clients;
    }

    void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("concurrent", this::concurrent);
        scenarios.put("orderly", this::orderly);
        scenarios.put("orderly-retry", this::orderlyRetry);
        scenarios.put("broadcast", this::broadcast);
        scenarios.put("retry", this::retry);
        scenarios.put("tags", this::tags);
        scenarios.put("sql", this::sql);
        scenarios.put("heartbeat-v2", this::heartbeatV2);
        scenarios.put("from-timestamp", this::fromTimestamp);
        scenarios.put("from-last", this::fromLast);
        scenarios.put("resubscribe", this::resubscribe);
        scenarios.put("namespaced", this::namespaced);
        scenarios.put("start", this::start);
        scenarios.put("await", this::await);
        scenarios.put("got", this::got);
        scenarios.put("stop", this::stop);
    }

    private static String group(String topic) {
        return "G_" + topic;
    }

    private DefaultMQPushConsumer subscribed(String topic, MessageListenerConcurrently to) throws MQClientException {
        DefaultMQPushConsumer c = clients.push(group(topic));
        c.subscribe(topic, "*");
        c.registerMessageListener(to);
        return c;
    }

    private static void shutdown(List<DefaultMQPushConsumer> consumers) {
        consumers.forEach(DefaultMQPushConsumer::shutdown);
    }

    /** Two members share the queues, a third joins, one leaves; nothing is lost. */
    String concurrent(String... args) throws Exception {
        Received got = new Received();
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        try {
            for (int i = 0; i < 2; i++) {
                members.add(subscribed(args[0], got));
                members.get(i).start();
            }
            clients.send(args[0], 40);
            got.awaitEachOnce(40);
            members.add(subscribed(args[0], got));
            members.get(2).start();
            members.remove(0).shutdown();
            DefaultMQProducer p = clients.started("P_" + args[0]);
            for (int i = 40; i < 80; i++) {
                p.send(Clients.message(args[0], i));
            }
            p.shutdown();
            got.awaitBodies(80);
            return got.queues().toString();
        } finally {
            shutdown(members);
        }
    }

    /** Order within each queue, with two members. */
    String orderly(String... args) throws Exception {
        Received got = new Received();
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        try {
            clients.send(args[0], 60);
            for (int i = 0; i < 2; i++) {
                DefaultMQPushConsumer c = clients.push(group(args[0]));
                c.subscribe(args[0], "*");
                c.registerMessageListener((MessageListenerOrderly) (msgs, context) -> {
                    got.add(msgs);
                    return ConsumeOrderlyStatus.SUCCESS;
                });
                members.add(c);
                c.start();
            }
            Map<Integer, Long> last = new HashMap<>();
            for (MessageExt m : got.await(60)) {
                long before = last.getOrDefault(m.getQueueId(), -1L);
                check(m.getQueueOffset() > before, "queue %d: offset %d after %d", m.getQueueId(), m.getQueueOffset(), before);
                last.put(m.getQueueId(), m.getQueueOffset());
            }
            return last.toString();
        } finally {
            shutdown(members);
        }
    }

    /** One message fails twice and is tried in place; another one always fails and becomes a dead letter. */
    String orderlyRetry(String... args) throws Exception {
        Received got = new Received();
        Received tries = new Received();
        DefaultMQPushConsumer c = clients.push(group(args[0]));
        c.subscribe(args[0], "*");
        c.setMaxReconsumeTimes(2);
        c.setSuspendCurrentQueueTimeMillis(20);
        c.registerMessageListener((MessageListenerOrderly) (msgs, context) -> {
            tries.add(msgs);
            MessageExt m = msgs.get(0);
            if (Received.body(m).equals("1") || m.getReconsumeTimes() < 2 && Received.body(m).equals("0")) {
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            got.add(msgs);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        clients.send(args[0], 8);
        c.start();
        try {
            got.await(7);
            equal("tries of the first", 3, tries.counts().get("0"));
            Received dead = new Received();
            DefaultMQPushConsumer d = clients.push(group(args[0]) + "_dead");
            d.subscribe("%DLQ%" + group(args[0]), "*");
            d.registerMessageListener(dead);
            d.start();
            try {
                equal("dead letter", "1", Received.body(dead.await(1).get(0)));
            } finally {
                d.shutdown();
            }
            return tries.counts().toString();
        } finally {
            c.shutdown();
        }
    }

    String broadcast(String... args) throws Exception {
        List<Received> got = new ArrayList<>();
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        try {
            for (int i = 0; i < 2; i++) {
                got.add(new Received());
                DefaultMQPushConsumer c = subscribed(args[0], got.get(i));
                c.setMessageModel(MessageModel.BROADCASTING);
                members.add(c);
                c.start();
            }
            clients.send(args[0], 20);
            for (Received r : got) {
                r.awaitEachOnce(20);
            }
            return "20 each";
        } finally {
            shutdown(members);
        }
    }

    /** Fails until the maximum: comes again with its count, then as a dead letter. */
    String retry(String... args) throws Exception {
        int max = 3;
        Received tries = new Received();
        DefaultMQPushConsumer c = subscribed(args[0], (msgs, context) -> {
            tries.add(msgs);
            return Received.body(msgs.get(0)).equals("0") ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.setMaxReconsumeTimes(max);
        c.start();
        Received dead = new Received();
        DefaultMQPushConsumer d = clients.push(group(args[0]) + "_dead");
        try {
            clients.send(args[0], 3);
            List<Integer> times = new ArrayList<>();
            for (MessageExt m : tries.await(3 + max)) {
                equal("topic of " + m, args[0], m.getTopic());
                if (Received.body(m).equals("0")) {
                    times.add(m.getReconsumeTimes());
                }
            }
            List<Integer> want = new ArrayList<>();
            for (int i = 0; i <= max; i++) {
                want.add(i);
            }
            equal("counts of the tries", want, times);
            d.subscribe("%DLQ%" + group(args[0]), "*");
            d.registerMessageListener(dead);
            d.start();
            MessageExt m = dead.await(1).get(0);
            equal("dead letter", "0", Received.body(m));
            equal("tries", 3 + max, tries.all().size());
            return m.getProperties().toString();
        } finally {
            c.shutdown();
            d.shutdown();
        }
    }

    private void sendTagged(String topic) throws Exception {
        DefaultMQProducer p = clients.started("P_" + topic);
        try {
            for (int i = 0; i < 30; i++) {
                Message m = Clients.message(topic, i);
                m.setTags("Tag" + "ABC".charAt(i % 3));
                m.putUserProperty("n", Integer.toString(i));
                Clients.stored(p.send(m));
            }
        } finally {
            p.shutdown();
        }
    }

    String tags(String... args) throws Exception {
        sendTagged(args[0]);
        Received got = new Received();
        DefaultMQPushConsumer c = clients.push(group(args[0]));
        c.subscribe(args[0], "TagA || TagC");
        c.registerMessageListener(got);
        c.start();
        try {
            got.awaitEachOnce(20);
            for (MessageExt m : got.all()) {
                check(!m.getTags().equals("TagB"), "got %s", m);
            }
            return got.counts().toString();
        } finally {
            c.shutdown();
        }
    }

    String sql(String... args) throws Exception {
        sendTagged(args[0]);
        Received got = new Received();
        DefaultMQPushConsumer c = clients.push(group(args[0]));
        c.subscribe(args[0], MessageSelector.bySql("n >= 10 AND n < 20 AND TAGS = 'TagA'"));
        c.registerMessageListener(got);
        c.start();
        try {
            got.await(3);
            equal("bodies", "{12=1, 15=1, 18=1}", got.counts().toString());
            return got.counts().toString();
        } finally {
            c.shutdown();
        }
    }

    /** Heartbeats without subscriptions: what was subscribed stays. */
    String heartbeatV2(String... args) throws Exception {
        Received got = new Received();
        DefaultMQPushConsumer c = subscribed(args[0], got);
        c.setUseHeartbeatV2(true);
        c.setHeartbeatBrokerInterval(100);
        c.start();
        try {
            clients.send(args[0], 8);
            got.awaitEachOnce(8);
            long end = System.currentTimeMillis() + 1000; // some heartbeats
            int sent = 8;
            DefaultMQProducer p = clients.started("P_" + args[0]);
            while (System.currentTimeMillis() < end) {
                p.send(Clients.message(args[0], sent++));
                got.awaitEachOnce(sent);
                Thread.sleep(50);
            }
            p.shutdown();
            return sent + " received";
        } finally {
            c.shutdown();
        }
    }

    /** Only what was stored after a time, whose unit is the second. A clustering group would get the rest as well, with RocketMQ as with us: see fromLast. */
    String fromTimestamp(String... args) throws Exception {
        clients.send(args[0], 8);
        Thread.sleep(1100);
        String now = new SimpleDateFormat("yyyyMMddHHmmss").format(new Date());
        DefaultMQProducer p = clients.started("P_" + args[0]);
        for (int i = 8; i < 16; i++) {
            p.send(Clients.message(args[0], i));
        }
        p.shutdown();
        Received got = new Received();
        DefaultMQPushConsumer c = subscribed(args[0], got);
        c.setMessageModel(MessageModel.BROADCASTING);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
        c.setConsumeTimestamp(now);
        c.start();
        try {
            return got.await(8).stream().map(Received::body).map(Integer::valueOf).sorted().collect(Collectors.toList()).toString();
        } finally {
            c.shutdown();
        }
    }

    /** A queue that still has its first message: a new group begins there, as with RocketMQ. */
    String fromLast(String... args) throws Exception {
        clients.send(args[0], 8);
        Received got = new Received();
        DefaultMQPushConsumer c = subscribed(args[0], got);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        c.start();
        try {
            got.awaitEachOnce(8);
            return got.counts().toString();
        } finally {
            c.shutdown();
        }
    }

    /** A second topic, args[1], joins and the first leaves at run time; a pause. */
    String resubscribe(String... args) throws Exception {
        Received got = new Received();
        DefaultMQPushConsumer c = subscribed(args[0], got);
        c.start();
        try {
            clients.send(args[0], 4);
            got.await(4);
            c.subscribe(args[1], "*");
            clients.send(args[1], 4);
            got.await(8);
            c.suspend();
            clients.send(args[0], 4);
            c.resume();
            got.await(12);
            c.unsubscribe(args[0]);
            return got.counts().toString();
        } finally {
            c.shutdown();
        }
    }

    /** args[1] is the namespace. */
    @SuppressWarnings("deprecation") // programs have it still
    String namespaced(String... args) throws Exception {
        Received got = new Received();
        AtomicInteger failures = new AtomicInteger();
        DefaultMQPushConsumer c = clients.push(group(args[0]));
        c.setNamespace(args[1]);
        c.subscribe(args[0], "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, context) -> {
            if (failures.getAndIncrement() == 0) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            got.add(msgs);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        try {
            MessageExt m = got.await(1).get(0);
            equal("topic of " + m, args[0], m.getTopic());
            equal("tries", 1, m.getReconsumeTimes());
            return m.toString();
        } finally {
            c.shutdown();
        }
    }

    /** Starts a consumer that goes on beyond the scenario, under the name args[1]; args[2], if any, is "orderly". */
    String start(String... args) throws Exception {
        Running r = new Running();
        r.got = new Received();
        r.consumer = clients.push(group(args[0]));
        r.consumer.subscribe(args[0], "*");
        if (args.length > 2 && args[2].equals("orderly")) {
            r.consumer.registerMessageListener((MessageListenerOrderly) (msgs, context) -> {
                r.got.add(msgs);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            r.consumer.registerMessageListener(r.got);
        }
        r.consumer.start();
        check(running.put(args[1], r) == null, "%s runs already", args[1]);
        return r.consumer.buildMQClientId();
    }

    /** Waits until the consumer args[0] has got args[1] messages, and returns their bodies. */
    String await(String... args) throws Exception {
        running.get(args[0]).got.await(Integer.parseInt(args[1]));
        return got(args);
    }

    /** The bodies of all that the consumer args[0] has got, one a line. */
    String got(String... args) {
        List<String> bodies = new ArrayList<>();
        running.get(args[0]).got.all().forEach(m -> bodies.add(Received.body(m)));
        Collections.sort(bodies);
        return String.join("\n", bodies);
    }

    String stop(String... args) {
        String bodies = got(args);
        running.remove(args[0]).consumer.shutdown();
        return bodies;
    }
}
