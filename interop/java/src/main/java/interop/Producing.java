package interop;

import static interop.Clients.bytes;
import static interop.Clients.check;
import static interop.Clients.equal;
import static interop.Clients.message;
import static interop.Clients.refused;
import static interop.Clients.stored;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageQueue;

/** What producers do. The first argument of each is its topic. */
final class Producing {
    private final Clients clients;

    Producing(Clients clients) {
        this.clients = clients;
    }

    void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("sync", this::sync);
        scenarios.put("async", this::async);
        scenarios.put("oneway", this::oneway);
        scenarios.put("batch", this::batch);
        scenarios.put("properties", this::properties);
        scenarios.put("delay", this::delay);
        scenarios.put("compressed", this::compressed);
        scenarios.put("selector", this::selector);
        scenarios.put("queue", this::queue);
        scenarios.put("too-large", this::tooLarge);
        scenarios.put("illegal", this::illegal);
        scenarios.put("tls", this::tls);
        scenarios.put("namespace", this::namespace);
        scenarios.put("timed", this::timed);
    }

    /** Numbered messages: offsets go up by one in each queue. */
    String sync(String... args) throws Exception {
        Map<Integer, Long> next = new TreeMap<>();
        for (SendResult r : clients.send(args[0], 12)) {
            long want = next.getOrDefault(r.getMessageQueue().getQueueId(), 0L);
            equal("offset of " + r, want, r.getQueueOffset());
            next.put(r.getMessageQueue().getQueueId(), want + 1);
        }
        return next.toString();
    }

    String async(String... args) throws Exception {
        int n = 100;
        CountDownLatch done = new CountDownLatch(n);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        DefaultMQProducer p = clients.started("P_" + args[0]);
        try {
            for (int i = 0; i < n; i++) {
                p.send(message(args[0], i), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult r) {
                        stored(r);
                        done.countDown();
                    }

                    @Override
                    public void onException(Throwable e) {
                        failure.set(e);
                        done.countDown();
                    }
                });
            }
            check(done.await(Clients.PATIENCE_MS, TimeUnit.MILLISECONDS), "%d of %d sends have not come back", done.getCount(), n);
            if (failure.get() != null) {
                throw new AssertionError("a send failed", failure.get());
            }
        } finally {
            p.shutdown();
        }
        return n + " sent";
    }

    String oneway(String... args) throws Exception {
        DefaultMQProducer p = clients.started("P_" + args[0]);
        try {
            p.send(message(args[0], 0)); // the route is known: nothing is lost for want of it
            for (int i = 1; i < 20; i++) {
                p.sendOneway(message(args[0], i));
            }
        } finally {
            p.shutdown();
        }
        return "20 sent";
    }

    String batch(String... args) throws Exception {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            Message m = message(args[0], i);
            m.setTags("tag" + i % 2);
            m.setKeys("key" + i);
            batch.add(m);
        }
        DefaultMQProducer p = clients.started("P_" + args[0]);
        try {
            SendResult r = stored(p.send(batch));
            equal("number of ids in " + r, 10, r.getMsgId().split(",").length);
            equal("number of offset ids in " + r, 10, r.getOffsetMsgId().split(",").length);
            equal("first offset", 0L, r.getQueueOffset());
            return r.getMsgId();
        } finally {
            p.shutdown();
        }
    }

    String properties(String... args) throws Exception {
        Message m = new Message(args[0], "TagA", "k1 k2", 7, bytes("body"), true);
        m.putUserProperty("user", "värde");
        m.putUserProperty("empty?", "no");
        DefaultMQProducer p = clients.started("P_" + args[0]);
        try {
            return stored(p.send(m)).getMsgId();
        } finally {
            p.shutdown();
        }
    }

    /** args[1] is the delay level. */
    String delay(String... args) throws Exception {
        Message m = message(args[0], 0);
        m.setDelayTimeLevel(Integer.parseInt(args[1]));
        DefaultMQProducer p = clients.started("P_" + args[0]);
        try {
            return stored(p.send(m)).toString();
        } finally {
            p.shutdown();
        }
    }

    /** args[1] is ZLIB, LZ4 or ZSTD. */
    String compressed(String... args) throws Exception {
        byte[] body = new byte[20_000];
        Arrays.fill(body, (byte) 'x');
        DefaultMQProducer p = clients.producer("P_" + args[0]);
        p.setCompressType(CompressionType.of(args[1]));
        p.start();
        try {
            return stored(p.send(new Message(args[0], body))).getMsgId();
        } finally {
            p.shutdown();
        }
    }

    String selector(String... args) throws Exception {
        DefaultMQProducer p = clients.started("P_" + args[0]);
        try {
            Map<String, MessageQueue> queues = new TreeMap<>();
            for (int i = 0; i < 30; i++) {
                String order = "order" + i % 5;
                SendResult r = stored(p.send(message(args[0], i), new SelectMessageQueueByHash(), order));
                MessageQueue before = queues.put(order, r.getMessageQueue());
                check(before == null || before.equals(r.getMessageQueue()), "%s goes to %s and to %s", order, before, r.getMessageQueue());
            }
            return queues.toString();
        } finally {
            p.shutdown();
        }
    }

    String queue(String... args) throws Exception {
        DefaultMQProducer p = clients.started("P_" + args[0]);
        try {
            for (MessageQueue q : p.fetchPublishMessageQueues(args[0])) {
                SendResult r = stored(p.send(message(args[0], q.getQueueId()), q));
                equal("queue of " + r, q, r.getMessageQueue());
            }
            return p.fetchPublishMessageQueues(args[0]).toString();
        } finally {
            p.shutdown();
        }
    }

    String tooLarge(String... args) throws Exception {
        DefaultMQProducer p = clients.producer("P_" + args[0]);
        p.setMaxMessageSize(8 << 20);
        p.setCompressMsgBodyOverHowmuch(16 << 20);
        p.start();
        try {
            return refused(13, () -> p.send(new Message(args[0], new byte[5 << 20])));
        } finally {
            p.shutdown();
        }
    }

    /** A queue that does not exist. */
    String illegal(String... args) throws Exception {
        DefaultMQProducer p = clients.started("P_" + args[0]);
        try {
            MessageQueue q = p.fetchPublishMessageQueues(args[0]).get(0);
            return refused(29, () -> p.send(message(args[0], 0), new MessageQueue(args[0], q.getBrokerName(), 99)));
        } finally {
            p.shutdown();
        }
    }

    String tls(String... args) throws Exception {
        DefaultMQProducer p = clients.producer("P_" + args[0]);
        p.setUseTLS(true);
        p.start();
        try {
            return stored(p.send(message(args[0], 0))).toString();
        } finally {
            p.shutdown();
        }
    }

    /** args[1] is the namespace. */
    @SuppressWarnings("deprecation") // programs have it still
    String namespace(String... args) throws Exception {
        DefaultMQProducer p = clients.producer("P_" + args[0]);
        p.setNamespace(args[1]);
        p.start();
        try {
            SendResult r = stored(p.send(message(args[0], 0)));
            equal("topic of " + r, args[0], r.getMessageQueue().getTopic());
            return r.toString();
        } finally {
            p.shutdown();
        }
    }

    /** A delay in milliseconds, args[1]. */
    String timed(String... args) throws Exception {
        Message m = message(args[0], 0);
        m.putUserProperty("timed", args[1]);
        m.getProperties().put(MessageConst.PROPERTY_TIMER_DELAY_MS, args[1]);
        DefaultMQProducer p = clients.started("P_" + args[0]);
        try {
            return stored(p.send(m)).toString();
        } finally {
            p.shutdown();
        }
    }
}
