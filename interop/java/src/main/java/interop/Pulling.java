package interop;

import static interop.Clients.check;
import static interop.Clients.equal;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What consumers do that poll or pull. The first argument of each is its topic, the group is G_ and the topic. */
final class Pulling {
    private final Clients clients;

    Pulling(Clients clients) {
        this.clients = clients;
    }

    void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("lite-subscribe", this::liteSubscribe);
        scenarios.put("lite-assign", this::liteAssign);
        scenarios.put("lite-empty", this::liteEmpty);
        scenarios.put("pull", this::pull);
    }

    private static TreeSet<Integer> poll(DefaultLitePullConsumer c, int n) {
        TreeSet<Integer> bodies = new TreeSet<>();
        long end = System.currentTimeMillis() + Clients.PATIENCE_MS;
        while (bodies.size() < n) {
            check(System.currentTimeMillis() < end, "polled %s, want %d", bodies, n);
            for (MessageExt m : c.poll(1000)) {
                bodies.add(Integer.valueOf(Received.body(m)));
            }
        }
        return bodies;
    }

    /** A group of one that subscribes, commits, and goes on where it was. */
    String liteSubscribe(String... args) throws Exception {
        clients.send(args[0], 20);
        DefaultLitePullConsumer c = clients.lite("G_" + args[0]);
        c.subscribe(args[0], "*");
        c.setAutoCommit(false);
        c.start();
        try {
            equal("first messages", 20, poll(c, 20).size());
            c.commit();
        } finally {
            c.shutdown();
        }
        c = clients.lite("G_" + args[0]);
        c.subscribe(args[0], "*");
        c.start();
        try {
            clients.send(args[0], 4);
            return poll(c, 4).toString();
        } finally {
            c.shutdown();
        }
    }

    /** Queues of its own choice: seek, committed offsets, pause. */
    String liteAssign(String... args) throws Exception {
        clients.send(args[0], 40);
        DefaultLitePullConsumer c = clients.lite("G_" + args[0]);
        c.setAutoCommit(false);
        c.start();
        try {
            Collection<MessageQueue> queues = c.fetchMessageQueues(args[0]);
            c.assign(queues);
            for (MessageQueue q : queues) {
                c.seekToBegin(q);
            }
            equal("messages from the beginning", 40, poll(c, 40).size());
            c.commit();
            long committed = 0;
            for (MessageQueue q : queues) {
                committed += c.committed(q);
            }
            equal("committed in all", 40L, committed);
            MessageQueue one = queues.iterator().next();
            c.seek(one, 2);
            TreeSet<Integer> again = poll(c, 1);
            long at = c.offsetForTimestamp(one, System.currentTimeMillis() + 1000);
            equal("offset of a time to come", 10L, at);
            c.pause(queues);
            c.resume(queues);
            c.seekToEnd(one);
            check(c.poll(100).isEmpty(), "something behind the end");
            return again.toString();
        } finally {
            c.shutdown();
        }
    }

    /** Polls of an empty topic return empty. */
    String liteEmpty(String... args) throws Exception {
        DefaultLitePullConsumer c = clients.lite("G_" + args[0]);
        c.subscribe(args[0], "*");
        c.start();
        try {
            for (int i = 0; i < 5; i++) {
                check(c.poll(100).isEmpty(), "something in an empty topic");
            }
            clients.send(args[0], 1);
            return poll(c, 1).toString();
        } finally {
            c.shutdown();
        }
    }

    /** The consumer of old that pulls single queues. */
    @SuppressWarnings("deprecation") // what it is about: clients have it still
    String pull(String... args) throws Exception {
        clients.send(args[0], 40);
        DefaultMQPullConsumer c = clients.pull("G_" + args[0]);
        c.setRegisterTopics(Collections.singleton(args[0]));
        c.start();
        try {
            Set<MessageQueue> queues = c.fetchSubscribeMessageQueues(args[0]);
            TreeSet<Integer> bodies = new TreeSet<>();
            List<MessageQueue> balanced = new ArrayList<>(queues);
            for (MessageQueue q : balanced) {
                equal("first offset", 0L, c.minOffset(q));
                equal("offset behind the end", 10L, c.maxOffset(q));
                PullResult r = c.pull(q, "*", 0, 32);
                equal("status of " + r, PullStatus.FOUND, r.getPullStatus());
                r.getMsgFoundList().forEach(m -> bodies.add(Integer.valueOf(Received.body(m))));
                equal("next offset of " + r, 10L, r.getNextBeginOffset());
                equal("at the end", PullStatus.NO_NEW_MSG, c.pull(q, "*", 10, 32).getPullStatus());
                PullResult beyond = c.pull(q, "*", 99, 32);
                equal("beyond the end", PullStatus.OFFSET_ILLEGAL, beyond.getPullStatus());
                equal("offset to go on at", 10L, beyond.getNextBeginOffset());
                equal("another tag", PullStatus.NO_MATCHED_MSG, c.pull(q, "TagX", 0, 32).getPullStatus());
                c.updateConsumeOffset(q, r.getNextBeginOffset());
                // What the client persists by itself may be overtaken by the question below.
                c.getDefaultMQPullConsumerImpl().updateConsumeOffsetToBroker(q, r.getNextBeginOffset(), false);
                equal("committed", 10L, c.fetchConsumeOffset(q, true));
            }
            equal("messages", 40, bodies.size());
            // A pull that waits gets what comes meanwhile.
            MessageQueue first = balanced.get(0);
            Thread later = new Thread(() -> {
                try {
                    Thread.sleep(200);
                    clients.send(args[0], 4);
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            });
            later.start();
            PullResult r = c.pullBlockIfNotFound(first, "*", 10, 32);
            later.join();
            equal("status of " + r, PullStatus.FOUND, r.getPullStatus());
            return r.toString();
        } finally {
            c.shutdown();
        }
    }
}
