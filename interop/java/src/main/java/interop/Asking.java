package interop;

import static interop.Clients.check;
import static interop.Clients.equal;

import java.util.List;
import java.util.Map;

import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What is asked of brokers: the questions that every client has, and mqadmin. */
final class Asking {
    private final Clients clients;
    private final Tools tools = new Tools();

    Asking(Clients clients) {
        this.clients = clients;
    }

    void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("query", this::query);
        scenarios.put("offsets", this::offsets);
        scenarios.put("create-topic", this::createTopic);
        scenarios.put("mqadmin", this::mqadmin);
    }

    /** Messages of the topic args[0] by key, unique key and offset id. */
    String query(String... args) throws Exception {
        DefaultMQProducer p = clients.started("P_" + args[0]);
        try {
            SendResult sent = null;
            for (int i = 0; i < 5; i++) {
                Message m = Clients.message(args[0], i);
                m.setKeys("all one" + i);
                sent = Clients.stored(p.send(m));
            }
            long now = System.currentTimeMillis();
            QueryResult r = p.queryMessage(args[0], "all", 10, now - 60_000, now + 60_000);
            equal("number of messages of a key", 5, r.getMessageList().size());
            r = p.queryMessage(args[0], "one3", 10, 0, Long.MAX_VALUE);
            equal("body of a key's message", "3", Received.body(r.getMessageList().get(0)));
            MessageExt m = p.viewMessage(args[0], sent.getOffsetMsgId());
            equal("body by offset id", "4", Received.body(m));
            equal("unique key", sent.getMsgId(), m.getMsgId());
            m = p.viewMessage(args[0], sent.getMsgId());
            equal("body by unique key", "4", Received.body(m));
            try {
                p.queryMessage(args[0], "none", 10, 0, Long.MAX_VALUE);
                throw new AssertionError("found what does not exist");
            } catch (org.apache.rocketmq.client.exception.MQClientException e) {
                return e.getErrorMessage();
            }
        } finally {
            p.shutdown();
        }
    }

    String offsets(String... args) throws Exception {
        long begin = System.currentTimeMillis();
        clients.send(args[0], 8);
        DefaultMQProducer p = clients.started("P_" + args[0]);
        try {
            for (MessageQueue q : p.fetchPublishMessageQueues(args[0])) {
                equal("first offset", 0L, p.minOffset(q));
                equal("offset behind the end", 2L, p.maxOffset(q));
                equal("offset of a time before", 0L, p.searchOffset(q, begin - 1000));
                equal("offset of a time to come", 2L, p.searchOffset(q, System.currentTimeMillis() + 60_000));
                long earliest = p.earliestMsgStoreTime(q);
                check(earliest >= begin && earliest <= System.currentTimeMillis(), "first store time is %d", earliest);
            }
            return "4 queues";
        } finally {
            p.shutdown();
        }
    }

    @SuppressWarnings("deprecation") // of the two forms the one that all have
    String createTopic(String... args) throws Exception {
        DefaultMQProducer p = clients.started("P_" + args[0]);
        try {
            p.createTopic("TBW102", args[0], 3, (Map<String, String>) null);
            List<MessageQueue> queues = p.fetchPublishMessageQueues(args[0]);
            equal("queues of " + queues, 3, queues.size());
            return queues.toString();
        } finally {
            p.shutdown();
        }
    }

    /** Runs a command of mqadmin and returns what it prints. */
    String mqadmin(String... args) throws Exception {
        for (int left = 5;; left--) {
            synchronized (tools) {
                Thread.sleep(20); // each client of mqadmin is named by the millisecond of its start
            }
            String printed = PerThread.printed(() -> tools.run(args));
            if (left == 0 || !printed.contains("has created already")) {
                return printed;
            }
        }
    }
}
