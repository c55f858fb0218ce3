package interop;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Runs scenarios with the official client. Each line of standard input is one:
 * an id, a name and arguments, parted by tabs. Each gets one line on standard
 * output: the id, "ok" or "failed", and a text with its line ends and tabs
 * escaped. Scenarios run at the same time. The end of the input ends the
 * process. The only argument is the addresses of the name servers.
 */
public final class Main {
    /** A scenario: what it returns is for its caller, what it throws fails it. */
    interface Scenario {
        String run(String... args) throws Exception;
    }

    private Main() {
    }

    public static void main(String[] argv) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        PerThread.install();
        Clients clients = new Clients(argv[0]);
        Map<String, Scenario> scenarios = new TreeMap<>();
        new Producing(clients).addTo(scenarios);
        new Pushing(clients).addTo(scenarios);
        new Pulling(clients).addTo(scenarios);
        new Asking(clients).addTo(scenarios);
        ExecutorService pool = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] part = line.split("\t", -1);
            pool.execute(() -> {
                String answer = part[0] + "\t" + run(scenarios, part);
                synchronized (answers) {
                    answers.println(answer);
                }
            });
        }
        System.exit(0);
    }

    private static String run(Map<String, Scenario> scenarios, String[] part) {
        Scenario scenario = scenarios.get(part[1]);
        if (scenario == null) {
            return "failed\tno scenario " + part[1];
        }
        try {
            return "ok\t" + escape(scenario.run(Arrays.copyOfRange(part, 2, part.length)));
        } catch (Throwable t) {
            StringWriter trace = new StringWriter();
            t.printStackTrace(new PrintWriter(trace));
            return "failed\t" + escape(trace.toString());
        }
    }

    private static String escape(String text) {
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "");
    }
}
