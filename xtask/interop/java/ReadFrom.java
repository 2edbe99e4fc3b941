// Reads one partition from many places, each to its end, with an assigned partition and no group.
//
// usage: ReadFrom BOOTSTRAP SECONDS < JOBS
// A job is a line: NAME TOPIC ISOLATION MAX_BYTES START END. START is an offset, or @ and a timestamp.
// Prints "found NAME OFFSET" for a timestamp (-1: none), "record NAME OFFSET KEY VALUE" a record and, last,
// "end NAME POSITION". Bytes are in hex; above 64 of them they are LENGTH:SHA-256; "-" is null, "=" is empty.
// A job has SECONDS; after three that did not come to their end the rest is left.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public final class ReadFrom {
    private static final Map<String, KafkaConsumer<byte[], byte[]>> CONSUMERS = new HashMap<>();
    private static final PrintStream OUT = new PrintStream(System.out, false);

    public static void main(String[] args) throws Exception {
        long seconds = Long.parseLong(args[1]);
        BufferedReader jobs = new BufferedReader(new InputStreamReader(System.in));
        int hung = 0;
        for (String line = jobs.readLine(); line != null && hung < 3; line = jobs.readLine()) {
            if (!read(args[0], line.split(" "), seconds)) {
                hung++;
            }
        }
        OUT.flush();
        // The consumers know no group, so that nobody waits for their farewell.
        Runtime.getRuntime().halt(0);
    }

    private static boolean read(String bootstrap, String[] job, long seconds) throws Exception {
        KafkaConsumer<byte[], byte[]> consumer =
                CONSUMERS.computeIfAbsent(job[2] + " " + job[3], key -> consumer(bootstrap, job[2], job[3]));
        TopicPartition partition = new TopicPartition(job[1], 0);
        long deadline = System.nanoTime() + seconds * 1_000_000_000L;
        long end = Long.parseLong(job[5]);
        consumer.assign(List.of(partition));
        long start;
        if (job[4].startsWith("@")) {
            OffsetAndTimestamp found =
                    consumer.offsetsForTimes(Map.of(partition, Long.parseLong(job[4].substring(1)))).get(partition);
            start = found == null ? -1 : found.offset();
            OUT.println("found " + job[0] + " " + start);
            if (found == null) {
                start = end;
            }
        } else {
            start = Long.parseLong(job[4]);
        }
        consumer.seek(partition, start);
        while (consumer.position(partition) < end && System.nanoTime() < deadline) {
            for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(100))) {
                OUT.println("record " + job[0] + " " + one.offset() + " " + say(one.key()) + " " + say(one.value()));
            }
        }
        long position = consumer.position(partition);
        OUT.println("end " + job[0] + " " + position);
        return position >= end;
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String isolation, String maxBytes) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("isolation.level", isolation);
        p.put("fetch.max.bytes", maxBytes);
        p.put("max.partition.fetch.bytes", maxBytes);
        p.put("fetch.max.wait.ms", "20");
        p.put("enable.auto.commit", "false");
        p.put("auto.offset.reset", "none");
        return new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static String say(byte[] bytes) throws Exception {
        if (bytes == null) {
            return "-";
        }
        if (bytes.length == 0) {
            return "=";
        }
        if (bytes.length <= 64) {
            return HexFormat.of().formatHex(bytes);
        }
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(bytes);
        return bytes.length + ":" + HexFormat.of().formatHex(digest);
    }
}
