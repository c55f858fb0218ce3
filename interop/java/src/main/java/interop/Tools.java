package interop;

import java.util.Arrays;

import org.apache.commons.cli.CommandLine;
import org.apache.commons.cli.DefaultParser;
import org.apache.commons.cli.Options;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.srvutil.ServerUtil;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/** mqadmin, as its main does it, but for several commands at a time. */
final class Tools extends MQAdminStartup {
    Tools() {
        initCommand();
    }

    void run(String... args) {
        SubCommand found = null;
        for (SubCommand c : SUB_COMMANDS) {
            if (c.commandName().equalsIgnoreCase(args[0])) {
                found = c;
            }
        }
        Clients.check(found != null, "no command %s", args[0]);
        Options options = ServerUtil.buildCommandlineOptions(new Options());
        CommandLine line = ServerUtil.parseCmdLine("mqadmin " + args[0], Arrays.copyOfRange(args, 1, args.length),
            found.buildCommandlineOptions(options), new DefaultParser());
        System.setProperty(MixAll.NAMESRV_ADDR_PROPERTY, line.getOptionValue('n'));
        try {
            found.execute(line, options, null);
        } catch (Exception e) {
            e.printStackTrace();
        }
    }
}
