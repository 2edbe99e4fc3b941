// Fills a topic with every codec, plain, idempotent and transactional, then halts inside an open transaction.
//
// usage: Seed BOOTSTRAP TOPIC PARTITIONS RECORDS VALUE_BYTES
// Prints a line a record: "KIND PARTITION OFFSET KEY", KIND being committed, aborted or open.
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

public final class Seed {
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    private static final Random RANDOM = new Random(20260101L);

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        int records = Integer.parseInt(args[3]);
        int valueBytes = Integer.parseInt(args[4]);
        for (String codec : CODECS) {
            try (KafkaProducer<String, String> plain = producer(bootstrap, codec, false, null)) {
                report("committed", send(plain, topic, partitions, records, valueBytes, "java-plain-" + codec));
            }
            try (KafkaProducer<String, String> idempotent = producer(bootstrap, codec, true, null)) {
                report("committed", send(idempotent, topic, partitions, records, valueBytes, "java-idempotent-" + codec));
            }
            try (KafkaProducer<String, String> txn = producer(bootstrap, codec, true, "java-txn-" + codec)) {
                txn.initTransactions();
                txn.beginTransaction();
                List<Sent> first = send(txn, topic, partitions, records, valueBytes, "java-commit-" + codec);
                txn.commitTransaction();
                report("committed", first);
                txn.beginTransaction();
                List<Sent> second = send(txn, topic, partitions, records, valueBytes, "java-abort-" + codec);
                txn.flush();
                txn.abortTransaction();
                report("aborted", second);
            }
        }
        KafkaProducer<String, String> open = producer(bootstrap, "none", true, "java-open");
        open.initTransactions();
        open.beginTransaction();
        List<Sent> left = send(open, topic, partitions, 3, valueBytes, "java-open");
        open.flush();
        report("open", left);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private record Sent(String key, Future<RecordMetadata> answer) {}

    private static KafkaProducer<String, String> producer(String bootstrap, String codec, boolean idempotent, String id) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("acks", "all");
        p.put("compression.type", codec);
        p.put("enable.idempotence", Boolean.toString(idempotent));
        p.put("linger.ms", "5");
        p.put("delivery.timeout.ms", "30000");
        p.put("request.timeout.ms", "10000");
        if (id != null) {
            p.put("transactional.id", id);
            p.put("transaction.timeout.ms", "900000");
        }
        return new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
    }

    private static List<Sent> send(
            KafkaProducer<String, String> producer, String topic, int partitions, int records, int valueBytes, String prefix) {
        List<Sent> sent = new ArrayList<>();
        for (int i = 0; i < records; i++) {
            for (int partition = 0; partition < partitions; partition++) {
                String key = prefix + "-" + i;
                sent.add(new Sent(key, producer.send(new ProducerRecord<>(topic, partition, key, value(valueBytes)))));
            }
        }
        return sent;
    }

    private static String value(int size) {
        StringBuilder text = new StringBuilder(size);
        while (text.length() < size) {
            text.append(Integer.toHexString(RANDOM.nextInt()));
        }
        return text.substring(0, size);
    }

    private static void report(String kind, List<Sent> sent) throws Exception {
        for (Sent one : sent) {
            RecordMetadata at = one.answer().get();
            System.out.println(kind + " " + at.partition() + " " + at.offset() + " " + one.key());
        }
    }
}
