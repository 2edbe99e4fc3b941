// Reads a topic from start to end with assigned partitions and no group.
//
// usage: Consume BOOTSTRAP TOPIC PARTITIONS ISOLATION SECONDS
// Prints "record PARTITION OFFSET KEY" a record, then "end PARTITION POSITION END_OFFSET" a partition.
// Ends with status 1 if the end was not reached in time.
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public final class Consume {
    public static void main(String[] args) {
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("isolation.level", args[3]);
        p.put("enable.auto.commit", "false");
        p.put("auto.offset.reset", "none");
        p.put("max.poll.records", "5000");
        long deadline = System.nanoTime() + Long.parseLong(args[4]) * 1_000_000_000L;
        List<TopicPartition> all = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(args[2]); i++) {
            all.add(new TopicPartition(args[1], i));
        }
        boolean reached;
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all, Duration.ofSeconds(20));
            do {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println("record " + one.partition() + " " + one.offset() + " " + one.key());
                }
                reached = true;
                for (TopicPartition tp : all) {
                    reached &= consumer.position(tp) >= ends.get(tp);
                }
            } while (!reached && System.nanoTime() < deadline);
            for (TopicPartition tp : all) {
                System.out.println("end " + tp.partition() + " " + consumer.position(tp) + " " + ends.get(tp));
            }
        }
        System.out.flush();
        System.exit(reached ? 0 : 1);
    }
}
