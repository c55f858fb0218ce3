package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageExt;

/** What a consumer got, in the order in which it came. */
final class Received implements MessageListenerConcurrently {
    private final List<MessageExt> messages = new ArrayList<>();

    @Override
    public ConsumeConcurrentlyStatus consumeMessage(List<MessageExt> msgs, ConsumeConcurrentlyContext context) {
        add(msgs);
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    }

    synchronized void add(Collection<MessageExt> msgs) {
        messages.addAll(msgs);
        notifyAll();
    }

    synchronized List<MessageExt> all() {
        return new ArrayList<>(messages);
    }

    /** Body -> how often it came. */
    synchronized Map<String, Integer> counts() {
        Map<String, Integer> counts = new TreeMap<>();
        for (MessageExt m : messages) {
            counts.merge(body(m), 1, Integer::sum);
        }
        return counts;
    }

    synchronized TreeSet<Integer> queues() {
        TreeSet<Integer> queues = new TreeSet<>();
        for (MessageExt m : messages) {
            queues.add(m.getQueueId());
        }
        return queues;
    }

    static String body(MessageExt m) {
        return new String(m.getBody(), StandardCharsets.UTF_8);
    }

    /** Waits until n messages have come. */
    synchronized List<MessageExt> await(int n) throws InterruptedException {
        long end = System.currentTimeMillis() + Clients.PATIENCE_MS;
        while (messages.size() < n) {
            long left = end - System.currentTimeMillis();
            Clients.check(left > 0, "%d messages came, not %d: %s", messages.size(), n, counts());
            wait(left);
        }
        return all();
    }

    /** Waits until n bodies have come, however often: some come twice when members change. */
    synchronized void awaitBodies(int n) throws InterruptedException {
        long end = System.currentTimeMillis() + Clients.PATIENCE_MS;
        while (counts().size() < n) {
            long left = end - System.currentTimeMillis();
            Clients.check(left > 0, "%d bodies came, not %d: %s", counts().size(), n, counts());
            wait(left);
        }
    }

    /** Waits until each of n numbered bodies has come, and wants none twice. */
    void awaitEachOnce(int n) throws InterruptedException {
        await(n);
        Map<String, Integer> counts = counts();
        Clients.equal("number of bodies among " + counts, n, counts.size());
        Clients.equal("number of messages among " + counts, n, all().size());
    }
}
