// Sends one record to each partition with an idempotent producer and says what came of it.
//
// usage: Send BOOTSTRAP TOPIC PARTITIONS PREFIX
// Prints "acked PARTITION OFFSET KEY" or "refused PARTITION EXCEPTION MESSAGE" a partition.
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

public final class Send {
    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("acks", "all");
        p.put("enable.idempotence", "true");
        p.put("delivery.timeout.ms", "15000");
        p.put("request.timeout.ms", "5000");
        p.put("max.block.ms", "10000");
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(p, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> answers = new ArrayList<>();
            int partitions = Integer.parseInt(args[2]);
            for (int i = 0; i < partitions; i++) {
                answers.add(producer.send(new ProducerRecord<>(args[1], i, args[3] + "-" + i, "after")));
            }
            for (int i = 0; i < partitions; i++) {
                try {
                    System.out.println("acked " + i + " " + answers.get(i).get().offset() + " " + args[3] + "-" + i);
                } catch (ExecutionException refused) {
                    Throwable cause = refused.getCause();
                    System.out.println("refused " + i + " " + cause.getClass().getSimpleName() + " " + cause.getMessage());
                }
            }
        }
        System.out.flush();
        System.exit(0);
    }
}
