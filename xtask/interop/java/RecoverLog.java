// Kafka's own recovery of one partition, as LogManager does it at a start: UnifiedLog.create over its directory.
//
// usage: RecoverLog, then on standard input one line for each load: FOLDER CLEAN RECOVERY_POINT
// FOLDER is a partition's directory, CLEAN true or false. Prints a line for each: seconds of the load, CPU seconds of this
// process meanwhile, log end offset, known producers. The log is closed before the next line is read.
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public final class RecoverLog {
    public static void main(String[] args) throws Exception {
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            Map<String, Object> settings = new HashMap<>();
            settings.put("retention.ms", -1L);
            LogConfig config = new LogConfig(settings);
            long cpu = system.getProcessCpuTime();
            long start = System.nanoTime();
            UnifiedLog log = UnifiedLog.create(
                new File(words[0]), config, 0L, Long.parseLong(words[2]), scheduler, new BrokerTopicStats(), Time.SYSTEM,
                900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(4),
                Boolean.parseBoolean(words[1]), Optional.empty(), new ConcurrentHashMap<>(), false,
                LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
            long took = System.nanoTime() - start;
            long used = system.getProcessCpuTime() - cpu;
            System.out.println(took / 1e9 + " " + used / 1e9 + " " + log.logEndOffset() + " "
                + log.producerStateManager().activeProducers().size());
            log.close();
            // The next load begins when its line comes, with nothing of this one going on.
            System.gc();
            System.out.println("closed");
        }
        System.exit(0);
    }
}
