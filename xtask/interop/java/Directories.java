// Partition directories that nobody has seen before: lives of a log, lived by Kafka's own classes, then damaged by one hand,
// or two, and each with Kafka's word about it (see Verdicts).
//
// usage: Directories FOLDER FIRST COUNT          COUNT lives from the seed FIRST on, each damaged another way
//        Directories FOLDER sweep FIRST COUNT    COUNT lives, cut at each byte of their last batch, and with each byte of
//                                                the headers of two batches changed
// Makes FOLDER/logs/NAME: t-0/, the checkpoints of the log directory, expected.json, dump.txt. The same seed makes the same
// directories.
import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;
import java.util.zip.CRC32C;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.internals.ByteBufferOutputStream;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public final class Directories {
    static final long DAWN = 1_767_225_600_000L;
    static final String CLEAN = ".kafka_cleanshutdown";

    public static void main(String[] args) throws Exception {
        File logs = new File(args[0], "logs");
        logs.mkdirs();
        if (args[1].equals("sweep")) {
            long left = Long.parseLong(args[3]);
            for (long seed = Long.parseLong(args[2]); left > 0; seed++) if (sweep(logs, seed)) left--;
        } else {
            long first = Long.parseLong(args[1]);
            for (long seed = first; seed < first + Long.parseLong(args[2]); seed++) one(logs, seed);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    // One life a directory, and what is done to it.

    static void one(File logs, long seed) throws Exception {
        Random random = new Random(seed * 0x9E3779B97F4A7C15L + 1);
        Damage[] all = Damage.values();
        Damage damage = all[(int) (seed % all.length)];
        File root = new File(logs, String.format("%06d-%s", seed, damage.name().toLowerCase().replace('_', '-')));
        Life life = new Life(random, root);
        life.live();
        String done = damage.to(new Place(root, life, random));
        if (done != null && random.nextInt(6) == 0) {
            Damage second = all[random.nextInt(all.length)];
            Place place = new Place(root, life, random);
            String more = place.logs().isEmpty() ? null : second.to(place);
            if (more != null) done += "; " + more;
        }
        Verdicts.write(root, done == null ? "nothing: " + damage + " does not apply" : done, life.indexInterval, life.clock);
        System.out.println(root.getName() + ": " + done);
    }

    /** False if the life left too little in its active segment. */
    static boolean sweep(File logs, long seed) throws Exception {
        File whole = new File(logs, String.format("%06d-sweep-whole", seed));
        Random random = new Random(seed);
        Life life = new Life(random, whole);
        life.live();
        File active = newest(whole);
        byte[] bytes = Files.readAllBytes(active.toPath());
        List<int[]> batches = batches(bytes);
        if (batches.size() < 3) {
            remove(whole);
            return false;
        }
        Verdicts.write(whole, "nothing", life.indexInterval, life.clock);
        int[] last = batches.get(batches.size() - 1);
        for (int cut = last[0] + 1; cut < last[0] + last[1]; cut += cut < last[0] + 62 ? 1 : 3) {
            int at = cut;
            vary(logs, whole, life, String.format("%06d-cut-%04d", seed, cut - last[0]), "the last batch cut behind byte " + (cut - last[0]),
                file -> Arrays.copyOf(file, at));
        }
        int[] middle = batches.get(batches.size() / 2);
        for (int[] batch : new int[][] {middle, last})
            for (int at = 0; at < 61; at++) {
                int place = batch[0] + at;
                int bit = 1 << random.nextInt(8);
                String which = batch == last ? "last" : "middle";
                vary(logs, whole, life, String.format("%06d-flip-%s-%02d", seed, which, at),
                    "bit " + bit + " of header byte " + at + " of the " + which + " batch flipped",
                    file -> { byte[] copy = file.clone(); copy[place] ^= (byte) bit; return copy; });
            }
        System.out.println(whole.getName() + ": swept");
        return true;
    }

    interface Change { byte[] of(byte[] file); }

    private static void vary(File logs, File whole, Life life, String name, String what, Change change) throws Exception {
        File root = new File(logs, name);
        copy(whole, root);
        new File(root, CLEAN).delete();
        File active = newest(root);
        Files.write(active.toPath(), change.of(Files.readAllBytes(active.toPath())));
        long base = base(active);
        for (File file : new File(root, "t-0").listFiles())
            if (file.getName().endsWith(".snapshot") && base(file) > base) file.delete();
        point(root, "recovery-point-offset-checkpoint", base);
        Verdicts.write(root, what + "; no clean shutdown, the recovery point at the active segment", life.indexInterval, life.clock);
    }

    static void copy(File from, File to) throws IOException {
        try (Stream<Path> paths = Files.walk(from.toPath())) {
            for (Path path : (Iterable<Path>) paths::iterator) {
                String name = path.getFileName().toString();
                if (name.equals("expected.json") || name.equals("dump.txt")) continue;
                Path target = to.toPath().resolve(from.toPath().relativize(path));
                if (Files.isDirectory(path)) Files.createDirectories(target);
                else Files.copy(path, target, StandardCopyOption.COPY_ATTRIBUTES);
            }
        }
    }

    static File newest(File root) {
        List<File> logs = segments(new File(root, "t-0"));
        return logs.get(logs.size() - 1);
    }

    /** Segments that have the name of one. */
    static List<File> segments(File dir) {
        List<File> logs = Verdicts.sorted(dir, ".log");
        logs.removeIf(file -> !file.getName().matches("\\d{20}\\.log"));
        return logs;
    }

    static long base(File file) { return Long.parseLong(file.getName().substring(0, 20)); }

    static void point(File root, String name, long offset) throws IOException {
        Files.writeString(new File(root, name).toPath(), "0\n1\nt 0 " + offset + "\n");
    }

    /** Position and size of each batch, as far as frames go. */
    static List<int[]> batches(byte[] file) {
        List<int[]> found = new ArrayList<>();
        int at = 0;
        while (at + 17 <= file.length) {
            int size = ByteBuffer.wrap(file).getInt(at + 8) + 12;
            if (size < 26 || at + size > file.length || size < 0) break;
            found.add(new int[] {at, size});
            at += size;
        }
        return found;
    }

    static void seal(byte[] file, int at, int size) {
        CRC32C crc = new CRC32C();
        crc.update(file, at + 21, size - 21);
        ByteBuffer.wrap(file).putInt(at + 17, (int) crc.getValue());
    }

    // A log's life.

    static final class Producer {
        final long id;
        short epoch;
        int sequence;
        boolean open;
        Producer(long id, short epoch, int sequence) { this.id = id; this.epoch = epoch; this.sequence = sequence; }
    }

    static final class Life {
        final Random random;
        final File root;
        final File dir;
        final int indexInterval;
        final int segmentBytes;
        final List<Producer> producers = new ArrayList<>();
        UnifiedLog log;
        int leaderEpoch;
        long clock = DAWN;
        boolean clean;
        /** One life in four has barriers, which Kafka does not know. */
        final boolean barriers;

        Life(Random random, File root) throws IOException {
            this.random = random;
            this.root = root;
            this.dir = new File(root, "t-0");
            if (root.exists()) throw new IOException(root + " is there");
            dir.mkdirs();
            indexInterval = new int[] {1, 200, 1024, 4096}[random.nextInt(4)];
            segmentBytes = new int[] {700, 2_000, 6_000, 1 << 20}[random.nextInt(4)];
            barriers = random.nextInt(4) == 0;
            leaderEpoch = random.nextInt(4);
            long[] ids = {5, 6, 9, 7_000, 1L << 40, 0, (1L << 62)};
            for (long id : ids) if (random.nextInt(3) > 0)
                producers.add(new Producer(id, (short) (random.nextInt(8) == 0 ? 32_760 : random.nextInt(3)),
                    random.nextInt(10) == 0 ? Integer.MAX_VALUE - random.nextInt(40) : random.nextInt(5) == 0 ? random.nextInt(100) : 0));
        }

        void open(boolean afterCleanStop) throws IOException {
            Map<String, Object> settings = new HashMap<>();
            settings.put("internal.segment.bytes", segmentBytes);
            settings.put("segment.index.bytes", 4096);
            settings.put("index.interval.bytes", indexInterval);
            settings.put("retention.ms", -1L);
            Verdicts.clock = clock;
            log = UnifiedLog.create(dir, new LogConfig(settings), log == null ? 0 : log.logStartOffset(), 0, Verdicts.NEVER,
                new BrokerTopicStats(), Verdicts.TIME, 900_000, new ProducerStateManagerConfig(86_400_000, true), 600_000,
                new LogDirFailureChannel(4), afterCleanStop, Optional.empty(), new ConcurrentHashMap<>(), false,
                LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        }

        void live() throws Exception {
            open(true);
            if (random.nextInt(3) > 0) log.assignEpochStartOffset(leaderEpoch, 0);
            boolean legacy = random.nextInt(15) == 0;
            if (legacy) for (int i = random.nextInt(6); i >= 0; i--) append(message((byte) random.nextInt(2)));
            int steps = 4 + random.nextInt(60);
            for (int i = 0; i < steps; i++) step();
            log.updateHighWatermark(log.logEndOffset());
            finish();
        }

        private void step() throws Exception {
            clock += random.nextInt(2_000);
            Verdicts.clock = clock;
            int what = random.nextInt(100);
            Producer producer = producers.isEmpty() ? null : producers.get(random.nextInt(producers.size()));
            if (what < 22) append(data(null, false));
            else if (what < 40 && producer != null) append(data(producer, producer.open));
            else if (what < 60 && producer != null) { producer.open = true; append(data(producer, true)); }
            else if (what < 72 && producer != null) marker(producer);
            else if (what < 75 && producer != null && !producer.open) { producer.epoch = (short) Math.min(32_766, producer.epoch + 1); producer.sequence = 0; }
            else if (what < 77 && producer != null) producer.sequence = next(producer.sequence, 1 + random.nextInt(9));
            else if (what < 80 && producer != null) append(empty(producer));
            else if (what < 83) { leaderEpoch += 1 + random.nextInt(3); if (random.nextBoolean()) log.assignEpochStartOffset(leaderEpoch, log.logEndOffset()); }
            else if (what < 87) log.roll();
            else if (what < 89) cut();
            else if (what < 91) forget();
            else if (what < 93 && barriers) append(control((short) 7, barrierValue()));
            else if (what < 94) append(control((short) (random.nextBoolean() ? 2 : 9), new byte[] {0, 0, 0, 0, 0, 1, 1, 1, 0}));
            else if (what < 95) log.takeProducerSnapshot();
            else if (what < 96) { log.flush(true); log.updateHighWatermark(log.logEndOffset()); }
            else if (what < 97) { stop(); open(true); }
            else if (what < 98) { gap = 1 + random.nextInt(200); }
            else append(data(null, false));
        }

        private long gap;

        private void append(byte[] batch) {
            if (batch.length > segmentBytes) return;
            log.appendAsFollower(MemoryRecords.readableRecords(ByteBuffer.wrap(batch)), Integer.MAX_VALUE);
            gap = random.nextInt(12) == 0 ? random.nextInt(40) : 0;
        }

        private long end() { return log.logEndOffset() + gap; }

        private static int next(int sequence, int by) {
            return sequence > Integer.MAX_VALUE - by ? by - (Integer.MAX_VALUE - sequence) - 1 : sequence + by;
        }

        private long time() {
            return switch (random.nextInt(14)) {
                case 0 -> clock - random.nextInt(100_000);
                case 1 -> clock + random.nextInt(100_000);
                case 2 -> random.nextInt(4) == 0 ? -1 : clock;
                default -> clock + random.nextInt(10);
            };
        }

        private byte[] data(Producer producer, boolean transactional) {
            CompressionType codec = random.nextInt(3) > 0 ? CompressionType.NONE : CompressionType.values()[random.nextInt(5)];
            TimestampType type = random.nextInt(8) == 0 ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
            long offset = end();
            long id = producer == null ? -1 : producer.id;
            short epoch = producer == null ? -1 : producer.epoch;
            int sequence = producer == null ? -1 : producer.sequence;
            long horizon = random.nextInt(30) == 0 ? clock + 86_400_000L : -1L;
            ByteBufferOutputStream out = new ByteBufferOutputStream(1024);
            MemoryRecordsBuilder builder = new MemoryRecordsBuilder(out, (byte) 2, Compression.of(codec).build(), type, offset,
                clock, id, epoch, sequence, transactional, false, leaderEpoch, 1 << 20, horizon);
            int count = 1 + random.nextInt(random.nextInt(6) == 0 ? 30 : 4);
            boolean holes = random.nextInt(8) == 0;
            long last = offset;
            for (int i = 0; i < count; i++) {
                if (holes && i > 0) offset += random.nextInt(3);
                byte[] key = random.nextInt(5) == 0 ? null : word(10);
                byte[] value = random.nextInt(8) == 0 ? null : word(120);
                Header[] headers = random.nextInt(6) > 0 ? new Header[0] : new Header[] {new RecordHeader("h", word(5)), new RecordHeader("", null)};
                builder.appendWithOffset(offset, new SimpleRecord(Math.max(-1, time()), key, value, headers));
                last = offset++;
            }
            if (holes && random.nextBoolean()) last += random.nextInt(4);
            builder.overrideLastOffset(last);
            byte[] bytes = bytes(builder.build());
            if (producer != null) {
                int delta = ByteBuffer.wrap(bytes).getInt(23);
                producer.sequence = next(producer.sequence, delta + 1);
            }
            return bytes;
        }

        private byte[] word(int most) {
            byte[] bytes = new byte[random.nextInt(most + 1)];
            for (int i = 0; i < bytes.length; i++) bytes[i] = (byte) ('a' + random.nextInt(26));
            return bytes;
        }

        private static byte[] bytes(MemoryRecords records) {
            byte[] bytes = new byte[records.sizeInBytes()];
            records.buffer().duplicate().get(bytes);
            return bytes;
        }

        private void marker(Producer producer) {
            if (!producer.open && random.nextInt(4) > 0) return;
            // Transaction version 2 raises the epoch in the marker, others do not.
            if (random.nextBoolean() && producer.epoch < 32_766) { producer.epoch++; producer.sequence = 0; }
            ControlRecordType type = random.nextInt(3) == 0 ? ControlRecordType.ABORT : ControlRecordType.COMMIT;
            if (random.nextInt(3) == 0) type = ControlRecordType.ABORT;
            append(bytes(MemoryRecords.withEndTransactionMarker(end(), clock, leaderEpoch, producer.id, producer.epoch,
                new EndTransactionMarker(type, random.nextInt(4)))));
            producer.open = false;
        }

        private byte[] empty(Producer producer) {
            ByteBuffer buffer = ByteBuffer.allocate(61);
            int count = 1 + random.nextInt(5);
            long base = end();
            DefaultRecordBatch.writeEmptyHeader(buffer, (byte) 2, producer.id, producer.epoch, producer.sequence, base, base + count - 1,
                leaderEpoch, TimestampType.CREATE_TIME, clock, producer.open, false);
            producer.sequence = next(producer.sequence, count);
            return buffer.array();
        }

        /** One record without a producer, its key a control type. */
        private byte[] control(short type, byte[] value) {
            byte[] batch = new byte[61 + 1 + 3 + 1 + 4 + 1 + value.length + 1];
            ByteBuffer b = ByteBuffer.wrap(batch);
            b.putLong(end()).putInt(batch.length - 12).putInt(leaderEpoch).put((byte) 2).putInt(0).putShort((short) 0x20).putInt(0)
                .putLong(clock).putLong(clock).putLong(-1).putShort((short) -1).putInt(-1).putInt(1);
            b.put((byte) ((batch.length - 62) * 2)).put(new byte[] {0, 0, 0}).put((byte) 8).putShort((short) 0).putShort(type)
                .put((byte) (value.length * 2)).put(value).put((byte) 0);
            seal(batch, 0, batch.length);
            return batch;
        }

        private byte[] barrierValue() {
            if (random.nextBoolean()) return new byte[] {0, 0, 0};
            byte[] value = new byte[26];
            value[2] = 23;
            byte[] cluster = "MkU3OEVBNTcwNTJENDM2Qk".getBytes(StandardCharsets.UTF_8);
            System.arraycopy(cluster, 0, value, 3, 22);
            return value;
        }

        private byte[] message(byte magic) {
            ByteBufferOutputStream out = new ByteBufferOutputStream(256);
            CompressionType codec = random.nextInt(3) > 0 ? CompressionType.NONE : CompressionType.GZIP;
            MemoryRecordsBuilder builder = new MemoryRecordsBuilder(out, magic, Compression.of(codec).build(),
                magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME, end(), -1L, -1L, (short) -1, -1, false, false, -1, 1 << 20);
            long offset = end();
            for (int i = random.nextInt(3); i >= 0; i--) builder.appendWithOffset(offset++, magic == 0 ? -1L : clock, word(5), word(40));
            return bytes(builder.build());
        }

        /** As a follower that meets another leader. */
        private void cut() {
            long from = log.logStartOffset();
            long end = log.logEndOffset();
            if (end <= from) return;
            long to = end - 1 - random.nextInt((int) Math.min(20, end - from));
            log.truncateTo(Math.max(from, to));
            // What was open may be open no more, or again.
            for (Producer producer : producers) {
                var entry = log.producerStateManager().activeProducers().get(producer.id);
                producer.open = entry != null && entry.currentTxnFirstOffset().isPresent();
            }
        }

        private void forget() throws IOException {
            log.updateHighWatermark(log.logEndOffset());
            long from = log.logStartOffset();
            long stable = log.lastStableOffset();
            if (stable <= from) return;
            log.maybeIncrementLogStartOffset(from + 1 + random.nextInt((int) Math.min(60, stable - from)), LogStartOffsetIncrementReason.ClientRecordDeletion);
            if (random.nextBoolean()) {
                log.deleteOldSegments();
                // Nothing runs behind our back, so what would be deleted later is deleted now.
                for (File file : dir.listFiles()) if (file.getName().endsWith(".deleted")) file.delete();
            }
        }

        private void stop() throws Exception {
            log.flush(true);
            log.takeProducerSnapshot();
            log.prepareActiveSegmentForClose();
            log.close();
        }

        private void finish() throws Exception {
            clean = random.nextInt(3) == 0;
            long start = log.logStartOffset();
            long first = log.logSegments().iterator().next().baseOffset();
            long end = log.logEndOffset();
            long point;
            if (clean) {
                stop();
                Files.writeString(new File(root, CLEAN).toPath(), "{\"version\":0,\"brokerEpoch\":-1}");
                point = end;
            } else {
                List<Long> bases = new ArrayList<>();
                for (LogSegment segment : log.logSegments()) bases.add(segment.baseOffset());
                point = switch (random.nextInt(4)) {
                    case 0 -> 0;
                    case 1 -> bases.get(random.nextInt(bases.size()));
                    case 2 -> first + (end == first ? 0 : random.nextInt((int) (end - first)));
                    default -> bases.get(bases.size() - 1);
                };
                // A process that is killed leaves its files as they are.
                File left = new File(root, "left");
                copy(dir, left);
                log.close();
                remove(dir);
                Files.move(left.toPath(), dir.toPath());
            }
            if (point > 0 || clean) point(root, "recovery-point-offset-checkpoint", point);
            if (start > first) point(root, "log-start-offset-checkpoint", start);
            if (random.nextBoolean()) point(root, "replication-offset-checkpoint", end);
            for (File file : dir.listFiles()) if (file.getName().endsWith(".deleted")) file.delete();
        }
    }

    static void remove(File folder) throws IOException {
        try (Stream<Path> paths = Files.walk(folder.toPath())) {
            paths.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }

    // What a hand may do.

    static final class Place {
        final File root;
        final File dir;
        final Life life;
        final Random random;

        Place(File root, Life life, Random random) {
            this.root = root;
            this.dir = new File(root, "t-0");
            this.life = life;
            this.random = random;
        }

        List<File> logs() { return segments(dir); }
        File any(String suffix) {
            List<File> files = Verdicts.sorted(dir, suffix);
            files.removeIf(file -> !file.isFile());
            return files.isEmpty() ? null : files.get(random.nextInt(files.size()));
        }
        File sealed() {
            List<File> logs = logs();
            return logs.size() < 2 ? null : logs.get(random.nextInt(logs.size() - 1));
        }
        /** No marker, and the recovery point where it was or at the active segment. */
        void unclean() throws IOException {
            new File(root, CLEAN).delete();
            if (logs().isEmpty()) return;
            long base = base(newest(root));
            if (random.nextBoolean()) point(root, "recovery-point-offset-checkpoint", base);
        }
        void maybeUnclean() throws IOException { if (random.nextInt(4) > 0) unclean(); }
        byte[] garbage(int size) { byte[] bytes = new byte[size]; random.nextBytes(bytes); return bytes; }
        int[] batch(byte[] file) {
            List<int[]> batches = batches(file);
            return batches.isEmpty() ? null : batches.get(random.nextInt(batches.size()));
        }
    }

    static byte[] read(File file) throws IOException { return Files.readAllBytes(file.toPath()); }
    static void write(File file, byte[] bytes) throws IOException { Files.write(file.toPath(), bytes); }
    static byte[] join(byte[]... parts) {
        int size = 0;
        for (byte[] part : parts) size += part.length;
        byte[] all = new byte[size];
        int at = 0;
        for (byte[] part : parts) { System.arraycopy(part, 0, all, at, part.length); at += part.length; }
        return all;
    }

    /** Behind the last batch of a file, without the zeros of a file that was allocated ahead. */
    static byte[] used(byte[] file) {
        List<int[]> batches = batches(file);
        int end = batches.isEmpty() ? 0 : batches.get(batches.size() - 1)[0] + batches.get(batches.size() - 1)[1];
        return Arrays.copyOf(file, end);
    }

    enum Damage {
        NONE { @Override String to(Place p) { return "nothing"; } },
        KILLED {
            @Override String to(Place p) throws IOException { p.unclean(); return "no clean shutdown"; }
        },
        CUT {
            @Override String to(Place p) throws IOException {
                File file = newest(p.root);
                byte[] bytes = read(file);
                if (bytes.length == 0) return null;
                int at = p.random.nextInt(bytes.length);
                write(file, Arrays.copyOf(bytes, at));
                p.maybeUnclean();
                return "the active segment cut at byte " + at;
            }
        },
        CUT_SEALED {
            @Override String to(Place p) throws IOException {
                File file = p.sealed();
                if (file == null || file.length() == 0) return null;
                byte[] bytes = read(file);
                List<int[]> batches = batches(bytes);
                int at = p.random.nextBoolean() && !batches.isEmpty() ? batches.get(p.random.nextInt(batches.size()))[0] : p.random.nextInt(bytes.length);
                write(file, Arrays.copyOf(bytes, at));
                p.maybeUnclean();
                return file.getName() + " cut at byte " + at + ", which is not the last segment";
            }
        },
        FLIP {
            @Override String to(Place p) throws IOException { return flip(p, newest(p.root)); }
        },
        FLIP_SEALED {
            @Override String to(Place p) throws IOException { return flip(p, p.sealed()); }
        },
        FLIP_CRC_RIGHT {
            // A header field that is nonsense, under the right CRC.
            @Override String to(Place p) throws IOException {
                File file = p.random.nextInt(3) > 0 ? newest(p.root) : p.any(".log");
                byte[] bytes = read(file);
                int[] batch = p.batch(bytes);
                if (batch == null || bytes[batch[0] + 16] != 2) return null;
                int at = batch[0] + 21 + p.random.nextInt(Math.min(60, batch[1] - 21));
                int bit = 1 << p.random.nextInt(8);
                bytes[at] ^= (byte) bit;
                seal(bytes, batch[0], batch[1]);
                write(file, bytes);
                p.maybeUnclean();
                return file.getName() + ": byte " + (at - batch[0]) + " of the batch at " + batch[0] + " changed by " + bit + ", its CRC set right";
            }
        },
        FIELD {
            // A field outside the CRC, or the frame's.
            @Override String to(Place p) throws IOException {
                File file = p.random.nextInt(3) > 0 ? newest(p.root) : p.any(".log");
                byte[] bytes = read(file);
                int[] batch = p.batch(bytes);
                if (batch == null) return null;
                ByteBuffer b = ByteBuffer.wrap(bytes);
                int at = batch[0];
                long offset = b.getLong(at);
                String what;
                switch (p.random.nextInt(5)) {
                    case 0 -> {
                        long[] to = {-1, 0, offset - 1, offset + 1, offset + 100_000, offset + (1L << 32), Long.MAX_VALUE, Long.MAX_VALUE - 1, Long.MIN_VALUE};
                        long value = to[p.random.nextInt(to.length)];
                        b.putLong(at, value);
                        what = "base offset " + offset + " to " + value;
                    }
                    case 1 -> {
                        int[] to = {0, 1, 13, 14, 48, 49, -1, batch[1] - 13, batch[1] - 11, batch[1] * 2, Integer.MAX_VALUE, Integer.MIN_VALUE};
                        int value = to[p.random.nextInt(to.length)];
                        b.putInt(at + 8, value);
                        what = "length " + (batch[1] - 12) + " to " + value;
                    }
                    case 2 -> {
                        byte[] to = {0, 1, 3, 127, -1, -128};
                        byte value = to[p.random.nextInt(to.length)];
                        b.put(at + 16, value);
                        what = "magic to " + value;
                    }
                    case 3 -> {
                        int[] to = {-1, 0, 1, 1_000, Integer.MAX_VALUE, Integer.MIN_VALUE};
                        int value = to[p.random.nextInt(to.length)];
                        b.putInt(at + 12, value);
                        what = "leader epoch to " + value;
                    }
                    default -> {
                        b.putInt(at + 17, p.random.nextBoolean() ? 0 : p.random.nextInt());
                        what = "CRC to another";
                    }
                }
                write(file, bytes);
                p.maybeUnclean();
                return file.getName() + ": batch at " + at + ", " + what;
            }
        },
        ZEROS_INSIDE {
            @Override String to(Place p) throws IOException {
                File file = p.random.nextInt(4) > 0 ? newest(p.root) : p.any(".log");
                byte[] bytes = read(file);
                if (bytes.length == 0) return null;
                int size = new int[] {1, 8, 16, 17, 61, 512, 1_024, 4_096}[p.random.nextInt(8)];
                int at = p.random.nextInt(bytes.length);
                if (p.random.nextBoolean()) at -= at % 512;
                else if (p.random.nextBoolean() && p.batch(bytes) != null) at = p.batch(bytes)[0];
                Arrays.fill(bytes, at, Math.min(bytes.length, at + size), (byte) 0);
                write(file, bytes);
                p.maybeUnclean();
                return file.getName() + ": " + size + " bytes from " + at + " on are zeros";
            }
        },
        ZEROS_BEHIND {
            @Override String to(Place p) throws IOException {
                File file = p.random.nextInt(3) > 0 ? newest(p.root) : p.any(".log");
                int size = 1 + p.random.nextInt(p.random.nextBoolean() ? 70 : 9_000);
                write(file, join(read(file), new byte[size]));
                p.maybeUnclean();
                return size + " zeros behind " + file.getName();
            }
        },
        GARBAGE_BEHIND {
            @Override String to(Place p) throws IOException {
                File file = p.random.nextInt(4) > 0 ? newest(p.root) : p.any(".log");
                byte[] bytes = used(read(file));
                int[] batch = p.batch(bytes);
                byte[] more;
                String what;
                switch (p.random.nextInt(6)) {
                    case 0 -> { more = p.garbage(1 + p.random.nextInt(400)); what = more.length + " random bytes"; }
                    case 1 -> { more = "a line of text\n".repeat(1 + p.random.nextInt(9)).getBytes(StandardCharsets.UTF_8); what = "text"; }
                    case 2 -> {
                        if (batch == null) return null;
                        more = Arrays.copyOfRange(bytes, batch[0], batch[0] + batch[1]);
                        what = "one of its batches again";
                    }
                    case 3 -> {
                        if (batch == null) return null;
                        more = Arrays.copyOfRange(bytes, batch[0], batch[0] + batch[1]);
                        ByteBuffer.wrap(more).putLong(0, 1_000_000L);
                        what = "one of its batches at offset 1000000";
                        if (p.random.nextBoolean()) { more = join(p.garbage(30), more); what += " behind 30 random bytes"; }
                    }
                    case 4 -> {
                        if (batch == null) return null;
                        more = Arrays.copyOfRange(bytes, batch[0], batch[0] + 1 + p.random.nextInt(batch[1] - 1));
                        ByteBuffer first = ByteBuffer.allocate(8).putLong(0, 1_000_000L);
                        System.arraycopy(first.array(), 0, more, 0, Math.min(8, more.length));
                        what = more.length + " bytes of a batch at offset 1000000";
                    }
                    default -> { more = join(new byte[512], p.garbage(100)); what = "a sector of zeros and 100 random bytes"; }
                }
                write(file, join(bytes, more));
                p.maybeUnclean();
                return "behind " + file.getName() + ": " + what;
            }
        },
        INDEX { @Override String to(Place p) throws IOException { return spoil(p, ".index", 8); } },
        TIME_INDEX { @Override String to(Place p) throws IOException { return spoil(p, ".timeindex", 12); } },
        TRANSACTION_INDEX { @Override String to(Place p) throws IOException { return spoil(p, ".txnindex", 34); } },
        SNAPSHOT { @Override String to(Place p) throws IOException { return spoil(p, ".snapshot", 46); } },
        SNAPSHOT_STRAY {
            @Override String to(Place p) throws IOException {
                File from = p.any(".snapshot");
                byte[] bytes = from == null ? new byte[] {0, 1, 0, 0, 0, 0, 0, 0, 0, 0} : read(from);
                long at = new long[] {0, 1, p.random.nextInt(200), 1_000_000, Long.MAX_VALUE}[p.random.nextInt(5)];
                File to = new File(p.dir, String.format("%020d.snapshot", at));
                if (to.exists()) return null;
                write(to, bytes);
                p.maybeUnclean();
                return "a snapshot of " + (from == null ? "nobody" : from.getName()) + " at " + at;
            }
        },
        ALL_AUXILIARY_GONE {
            @Override String to(Place p) throws IOException {
                String what = "";
                for (String suffix : new String[] {".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"})
                    if (p.random.nextInt(4) > 0) {
                        for (File file : Verdicts.sorted(p.dir, suffix)) file.delete();
                        what += " " + suffix;
                    }
                if (p.random.nextBoolean()) p.unclean();
                return "gone:" + what;
            }
        },
        EPOCHS {
            @Override String to(Place p) throws IOException {
                File file = new File(p.dir, "leader-epoch-checkpoint");
                String text = file.exists() ? Files.readString(file.toPath()) : "0\n0\n";
                String[] lines = text.split("\n");
                String[] to = {
                    null, "", "0\n", "0\n0\n", "1\n0\n", text.replace("\n", "\r\n"), text.replace(" ", "  "), " " + text.replace("\n", " \n"),
                    text + "\n\n", text.trim(), "0\n" + (lines.length - 1) + "\n" + text.substring(Math.min(text.length(), text.indexOf('\n', 2) + 1)),
                    "0\n2\n5 0\n3 7\n", "0\n2\n0 9\n1 3\n", "0\n1\n-1 0\n", "0\n1\n0 -5\n", "0\n1\n0 1000000\n", "0\n2\n0 0\n0 0\n", "0\n1\n0\n", "0\n1\n0 0 0\n",
                    "0\n1\n4000000000 0\n", "0\n1\n1000 0\n", "x\n", text + "9 9\n", "0\n1\n0x0 0\n", "0\n1\n+0 0\n", "0\n2\n0 0\n3 0\n",
                    new String(p.garbage(40), StandardCharsets.ISO_8859_1)};
                String value = to[p.random.nextInt(to.length)];
                if (value == null) file.delete();
                else Files.writeString(file.toPath(), value, StandardCharsets.ISO_8859_1);
                if (p.random.nextBoolean()) p.unclean();
                return "leader-epoch-checkpoint: " + (value == null ? "gone" : value.replace("\n", "\\n").replace("\r", "\\r").replaceAll("[^ -~]", "?"));
            }
        },
        CHECKPOINT {
            @Override String to(Place p) throws IOException {
                String name = p.random.nextBoolean() ? "recovery-point-offset-checkpoint" : "log-start-offset-checkpoint";
                File file = new File(p.root, name);
                String text = file.exists() ? Files.readString(file.toPath()) : "0\n1\nt 0 3\n";
                String[] to = {
                    null, "", "0\n", "0\n0\n", "1\n" + text.substring(2), text.replace("\n", "\r\n"), text.replace(" ", "  "), text.replace("t 0", "t\t0"),
                    " " + text.replace("\n", " \n"), text + "\n", text.trim(), text.replace("0\n1\n", "0\n2\n") + "other 0 7\n", text + "other 0 7\n",
                    text.replace("0\n1\n", "0\n2\n") + "t 0 1\n", text.replace("t 0", "t 1"), text.replace("t 0", "T 0"), "0\n1\nt 0 -1\n", "0\n1\nt 0 +2\n",
                    "0\n1\nt 0 99999999999999999999\n", "0\n1\nt 0\n", "0\n1\nt 0 1 1\n", "0\n1\na b 0 1\n", "garbage", "00\n1\nt 0 2\n", "0\n01\nt 00 02\n"};
                String value = to[p.random.nextInt(to.length)];
                if (value == null) file.delete();
                else Files.writeString(file.toPath(), value);
                if (p.random.nextBoolean()) new File(p.root, CLEAN).delete();
                return name + ": " + (value == null ? "gone" : value.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t"));
            }
        },
        RECOVERY_POINT {
            @Override String to(Place p) throws IOException {
                new File(p.root, CLEAN).delete();
                long base = base(newest(p.root));
                long at = new long[] {0, base - 1, base, base + 1, base + 100, 1_000_000, Long.MAX_VALUE}[p.random.nextInt(7)];
                point(p.root, "recovery-point-offset-checkpoint", Math.max(0, at));
                return "the recovery point at " + Math.max(0, at);
            }
        },
        LOG_START {
            @Override String to(Place p) throws IOException {
                long first = base(p.logs().get(0));
                long base = base(newest(p.root));
                long at = new long[] {0, first - 1, first + 1, base, base + 1, base + 3, 1_000_000, Long.MAX_VALUE}[p.random.nextInt(8)];
                point(p.root, "log-start-offset-checkpoint", Math.max(0, at));
                if (p.random.nextBoolean()) p.unclean();
                return "the log start at " + Math.max(0, at);
            }
        },
        SEGMENT_GONE {
            @Override String to(Place p) throws IOException {
                List<File> logs = p.logs();
                File gone = logs.get(p.random.nextInt(logs.size()));
                String digits = gone.getName().substring(0, 20);
                boolean all = p.random.nextBoolean();
                for (File file : p.dir.listFiles())
                    if (file.getName().startsWith(digits) && (all ? !file.getName().endsWith(".snapshot") : file.equals(gone))) file.delete();
                p.maybeUnclean();
                return gone.getName() + " is gone, " + (all ? "with its indexes" : "its indexes are there") + " (one of " + logs.size() + ")";
            }
        },
        SEGMENT_EMPTY {
            @Override String to(Place p) throws IOException {
                List<File> logs = p.logs();
                if (p.random.nextBoolean()) {
                    File file = logs.get(p.random.nextInt(logs.size()));
                    write(file, new byte[0]);
                    p.maybeUnclean();
                    return file.getName() + " is empty (one of " + logs.size() + ")";
                }
                long base = base(logs.get(p.random.nextInt(logs.size()))) + new int[] {1, 50, 100_000}[p.random.nextInt(3)];
                File file = new File(p.dir, String.format("%020d.log", base));
                if (file.exists()) return null;
                write(file, new byte[0]);
                p.maybeUnclean();
                return "an empty segment at " + base;
            }
        },
        SEGMENT_STRAY {
            // A segment that claims offsets of others, or stands far behind them.
            @Override String to(Place p) throws IOException {
                File from = p.any(".log");
                byte[] bytes = used(read(from));
                List<int[]> batches = batches(bytes);
                if (batches.isEmpty()) return null;
                int[] batch = batches.get(p.random.nextInt(batches.size()));
                boolean moved = p.random.nextBoolean();
                byte[] one = Arrays.copyOfRange(bytes, batch[0], moved ? batch[0] + batch[1] : bytes.length);
                if (moved) ByteBuffer.wrap(one).putLong(0, 1_000_000L);
                File file = new File(p.dir, String.format("%020d.log", ByteBuffer.wrap(one).getLong(0)));
                if (file.exists()) return null;
                write(file, one);
                p.maybeUnclean();
                return "batches of " + from.getName() + " again in " + file.getName();
            }
        },
        LEFTOVER {
            @Override String to(Place p) throws IOException {
                File from = p.random.nextInt(3) > 0 ? p.any(".log") : p.any(".index");
                if (from == null) return null;
                String suffix = new String[] {".deleted", ".cleaned", ".tmp"}[p.random.nextInt(3)];
                String name = p.random.nextBoolean() ? from.getName() : from.getName().replace("0", "9");
                write(new File(p.dir, name + suffix), p.random.nextBoolean() ? read(from) : p.garbage(100));
                p.maybeUnclean();
                return name + suffix + " is there";
            }
        },
        SWAP {
            // What the cleaner leaves between its last write and its last rename.
            @Override String to(Place p) throws IOException {
                List<File> logs = p.logs();
                int first = p.random.nextInt(logs.size());
                int count = Math.min(logs.size() - first, 1 + p.random.nextInt(2));
                byte[] bytes = new byte[0];
                for (int i = first; i < first + count; i++) bytes = join(bytes, used(read(logs.get(i))));
                List<int[]> batches = batches(bytes);
                if (batches.isEmpty()) return null;
                byte[] kept = new byte[0];
                for (int[] batch : batches)
                    if (p.random.nextInt(3) > 0) kept = join(kept, Arrays.copyOfRange(bytes, batch[0], batch[0] + batch[1]));
                String what = "";
                if (p.random.nextInt(4) == 0 && kept.length > 0) { kept = Arrays.copyOf(kept, kept.length - 1); what = ", cut by a byte"; }
                String digits = logs.get(first).getName().substring(0, 20);
                write(new File(p.dir, digits + ".log.swap"), kept);
                if (p.random.nextBoolean()) { write(new File(p.dir, digits + ".index.swap"), new byte[0]); what += ", an index too"; }
                if (p.random.nextInt(4) == 0) {
                    String other = logs.get(p.random.nextInt(logs.size())).getName();
                    write(new File(p.dir, other + ".cleaned"), new byte[0]);
                    what += ", " + other + ".cleaned is there";
                }
                if (p.random.nextInt(4) == 0) { logs.get(first).delete(); what += ", what it replaces is gone"; }
                p.unclean();
                return digits + ".log.swap of " + count + " segments" + what;
            }
        },
        STRAY {
            @Override String to(Place p) throws IOException {
                String[] names = {"notes.txt", "42.log", "00000000000000000000.log.bak", "0000000000000000000x.log", ".hidden", "00000000000000000007.txt",
                    "-0000000000000000001.log", "00000000000000000000.LOG", "lost+found", "000000000000000000001.log", "snapshots.checkpoint"};
                String name = names[p.random.nextInt(names.length)];
                File file = new File(p.dir, name);
                if (p.random.nextInt(3) == 0) file.mkdir();
                else write(file, p.garbage(50));
                if (p.random.nextBoolean()) p.unclean();
                return name + " is there" + (file.isDirectory() ? ", a folder" : "");
            }
        },
        METADATA {
            @Override String to(Place p) throws IOException {
                String[] to = {"", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n", "version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n", "version: 0", "garbage",
                    "version: 0\r\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\r\n", "version: 0\ntopic_id: AAAA\n", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n"};
                String value = to[p.random.nextInt(to.length)];
                Files.writeString(new File(p.dir, "partition.metadata").toPath(), value);
                if (p.random.nextBoolean()) p.unclean();
                return "partition.metadata: " + value.replace("\n", "\\n").replace("\r", "\\r");
            }
        };

        /** What was done; null if it cannot be done to this log. */
        abstract String to(Place place) throws IOException;

        static String flip(Place p, File file) throws IOException {
            if (file == null) return null;
            byte[] bytes = read(file);
            byte[] used = used(bytes);
            if (used.length == 0) return null;
            int at = p.random.nextInt(used.length);
            int[] batch = p.batch(used);
            if (p.random.nextBoolean()) at = batch[0] + p.random.nextInt(Math.min(61, batch[1]));
            int bit = 1 << p.random.nextInt(8);
            bytes[at] ^= (byte) bit;
            write(file, bytes);
            p.maybeUnclean();
            return file.getName() + ": bit " + bit + " of byte " + at + " flipped";
        }

        static String spoil(Place p, String suffix, int entry) throws IOException {
            File file = p.any(suffix);
            String what;
            if (file == null) {
                if (!suffix.equals(".txnindex")) return null;
                file = new File(p.dir, p.any(".log").getName().replace(".log", suffix));
                write(file, new byte[0]);
            }
            byte[] bytes = read(file);
            switch (p.random.nextInt(9)) {
                case 0 -> { file.delete(); what = "gone"; }
                case 1 -> { write(file, new byte[0]); what = "empty"; }
                case 2 -> { int size = p.random.nextInt(bytes.length + 1); write(file, Arrays.copyOf(bytes, size)); what = "cut at byte " + size; }
                case 3 -> { write(file, p.garbage(entry * (1 + p.random.nextInt(4)))); what = "random entries"; }
                case 4 -> { write(file, p.garbage(1 + p.random.nextInt(99))); what = "random bytes"; }
                case 5 -> {
                    File other = p.any(suffix);
                    if (other.equals(file)) { write(file, join(bytes, bytes)); what = "itself twice"; }
                    else { write(file, read(other)); what = "that of " + other.getName(); }
                }
                case 6 -> { write(file, join(bytes, new byte[entry * (1 + p.random.nextInt(300))])); what = "zeros behind it"; }
                case 7 -> { write(file, join(bytes, p.garbage(1 + p.random.nextInt(100)))); what = "random bytes behind it"; }
                default -> {
                    if (bytes.length == 0) return null;
                    int at = p.random.nextInt(Math.min(bytes.length, 4 * entry));
                    bytes[at] ^= (byte) (1 << p.random.nextInt(8));
                    write(file, bytes);
                    what = "a bit of byte " + at + " flipped";
                }
            }
            if (p.random.nextBoolean()) p.unclean();
            return file.getName() + ": " + what;
        }
    }
}
