package interop;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Standard output and error of threads that want to have what they print, and of their children. */
final class PerThread extends OutputStream {
    private static final InheritableThreadLocal<OutputStream> MINE = new InheritableThreadLocal<>();

    private final OutputStream others;

    private PerThread(OutputStream others) {
        this.others = others;
    }

    /** From here on what is printed goes to whom it belongs. */
    static void install() {
        System.setErr(new PrintStream(new PerThread(System.err), true));
        System.setOut(System.err); // whatever else is printed is no answer
    }

    /** What an action prints. */
    static String printed(Runnable action) {
        ByteArrayOutputStream to = new ByteArrayOutputStream();
        MINE.set(to);
        try {
            action.run();
        } finally {
            MINE.remove();
        }
        return new String(to.toByteArray(), StandardCharsets.UTF_8);
    }

    @Override
    public void write(int b) throws IOException {
        write(new byte[] {(byte) b}, 0, 1);
    }

    @Override
    public void write(byte[] b, int from, int length) throws IOException {
        OutputStream mine = MINE.get();
        (mine == null ? others : mine).write(b, from, length);
    }
}
