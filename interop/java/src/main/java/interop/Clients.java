package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Makes clients, each an instance of its own, and checks what they give. */
final class Clients {
    static final int PATIENCE_MS = 30_000;

    private final String nameServers;
    private final AtomicInteger instances = new AtomicInteger();

    Clients(String nameServers) {
        this.nameServers = nameServers;
    }

    private <C extends ClientConfig> C configure(C client) {
        client.setNamesrvAddr(nameServers);
        client.setInstanceName("java" + instances.incrementAndGet());
        client.setPollNameServerInterval(500);
        client.setMqClientApiTimeout(PATIENCE_MS); // 3 s: the virtual machine is cold, the machine may be busy
        client.setPersistConsumerOffsetInterval(200);
        return client;
    }

    DefaultMQProducer producer(String group) {
        DefaultMQProducer p = configure(new DefaultMQProducer(group));
        p.setSendMsgTimeout(PATIENCE_MS);
        return p;
    }

    DefaultMQProducer started(String group) throws MQClientException {
        DefaultMQProducer p = producer(group);
        p.start();
        return p;
    }

    DefaultMQPushConsumer push(String group) {
        DefaultMQPushConsumer c = configure(new DefaultMQPushConsumer(group));
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return c;
    }

    DefaultLitePullConsumer lite(String group) {
        DefaultLitePullConsumer c = configure(new DefaultLitePullConsumer(group));
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return c;
    }

    @SuppressWarnings("deprecation") // what it is about: clients have it still
    DefaultMQPullConsumer pull(String group) {
        return configure(new DefaultMQPullConsumer(group));
    }

    /** A message with its number for a body. */
    static Message message(String topic, int i) {
        return new Message(topic, bytes(Integer.toString(i)));
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Sends n messages, numbered from 0, queue by queue in turn. */
    List<SendResult> send(String topic, int n) throws Exception {
        DefaultMQProducer p = started("P_" + topic);
        try {
            List<SendResult> results = new ArrayList<>();
            for (int i = 0; i < n; i++) {
                results.add(stored(p.send(message(topic, i))));
            }
            return results;
        } finally {
            p.shutdown();
        }
    }

    static SendResult stored(SendResult r) {
        equal("status of " + r, SendStatus.SEND_OK, r.getSendStatus());
        check(r.getMsgId() != null && !r.getMsgId().isEmpty(), "no id in %s", r);
        check(r.getOffsetMsgId() != null && !r.getOffsetMsgId().isEmpty(), "no offset id in %s", r);
        return r;
    }

    static void check(boolean fact, String format, Object... args) {
        if (!fact) {
            throw new AssertionError(String.format(format, args));
        }
    }

    static void equal(String what, Object want, Object have) {
        check(want.equals(have), "%s is %s, not %s", what, have, want);
    }

    /** Something that may fail. */
    interface Action {
        void run() throws Exception;
    }

    /** Wants an action to be refused by the broker with a code, and returns the reason. */
    static String refused(int code, Action action) throws Exception {
        try {
            action.run();
        } catch (MQBrokerException e) {
            equal("code of " + e, code, e.getResponseCode());
            return e.getErrorMessage();
        } catch (MQClientException e) {
            equal("code of " + e, code, e.getResponseCode());
            return e.getErrorMessage();
        }
        throw new AssertionError("not refused with code " + code);
    }
}
