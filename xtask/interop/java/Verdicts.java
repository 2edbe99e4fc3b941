// Kafka's own word about partition directories: what its UnifiedLog makes of a copy, its reader of each file, its tool.
//
// Called by Directories for each directory that it has made; writes expected.json and dump.txt beside it. A directory is
// never opened itself, only copies of it.
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.FutureTask;
import java.util.concurrent.Delayed;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.AbortedTxn;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.FileLogInputStream;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogSegments;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import org.apache.kafka.tools.DumpLogSegments;

final class Verdicts {
    static final String VERSION = "4.4.0";
    static long clock;
    static final Time TIME = new Time() {
        @Override public long milliseconds() { return clock; }
        @Override public long nanoseconds() { return clock * 1_000_000L; }
        @Override public void sleep(long ms) { }
    };
    /** Nothing happens behind a log's back. */
    static final Scheduler NEVER = new Scheduler() {
        @Override public void startup() { }
        @Override public void shutdown() { }
        @Override public ScheduledFuture<?> schedule(String name, Runnable task, long delay, long period) { return new Idle(); }
        @Override public void resizeThreadPool(int size) { }
    };
    static final PrintStream OUT = System.out;

    static final class Idle extends FutureTask<Object> implements ScheduledFuture<Object> {
        Idle() { super(() -> null); }
        @Override public long getDelay(TimeUnit unit) { return Long.MAX_VALUE; }
        @Override public int compareTo(Delayed other) { return 0; }
    }

    private Verdicts() { }

    /** What was done by hand goes with it; the clock is what it was when the log was made. */
    static void write(File root, String made, int indexInterval, long now) throws Exception {
        clock = now;
        File partition = partition(root);
        boolean clean = new File(root, ".kafka_cleanshutdown").exists();
        long start = checkpoint(root, "log-start-offset-checkpoint", -1);
        long recovery = checkpoint(root, "recovery-point-offset-checkpoint", 0);
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("partition", partition.getName());
        said.put("made", made);
        said.put("readWithKafka", VERSION);
        said.put("clockMs", clock);
        said.put("indexIntervalBytes", indexInterval);
        said.put("inputs", map("cleanShutdownMarker", clean, "logStartOffsetCheckpoint", start,
            "recoveryPointCheckpoint", recovery, "highWatermarkCheckpoint", checkpoint(root, "replication-offset-checkpoint", -1)));
        List<Object> segments = new ArrayList<>();
        for (File file : sorted(partition, ".log")) if (file.isFile()) segments.add(asItLies(file));
        said.put("segments", segments);
        said.put("load", guarded(() -> load(partition, start, recovery, clean, false, indexInterval)));
        said.put("replay", guarded(() -> load(partition, start, 0, false, true, indexInterval)));
        StringBuilder text = new StringBuilder();
        json(text, said);
        Files.writeString(new File(root, "expected.json").toPath(), text.append('\n').toString());
        Files.writeString(new File(root, "dump.txt").toPath(), dump(partition));
    }

    static File partition(File root) {
        for (File file : root.listFiles()) if (file.isDirectory()) return file;
        throw new IllegalStateException("no partition in " + root);
    }

    static Object guarded(Callable<Object> body) {
        try { return body.call(); } catch (Throwable error) { return fault(error); }
    }

    static Map<String, Object> fault(Throwable error) {
        String message = String.valueOf(error.getMessage()).replaceAll("/\\S*/weir-load[^/]*/", "").replaceAll("/\\S*/logs/", "logs/");
        return map("exception", error.getClass().getName(), "message", message);
    }

    /** As a broker reads it at a start: one that it cannot read says nothing. */
    static long checkpoint(File root, String name, long none) {
        File file = new File(root, name);
        if (!file.exists()) return none;
        try {
            return new OffsetCheckpointFile(file, null).read().getOrDefault(new TopicPartition("t", 0), none);
        } catch (Exception error) {
            return none;
        }
    }

    static List<File> sorted(File folder, String suffix) {
        List<File> found = new ArrayList<>();
        for (File file : folder.listFiles()) if (file.getName().endsWith(suffix)) found.add(file);
        found.sort(Comparator.comparing(File::getName));
        return found;
    }

    /** Batch by batch, until Kafka's reader stops or throws. */
    static Object asItLies(File file) throws IOException {
        Map<String, Object> segment = new LinkedHashMap<>();
        List<Object> batches = new ArrayList<>();
        segment.put("file", file.getName());
        segment.put("size", file.length());
        segment.put("batches", batches);
        long end = 0;
        try (FileRecords records = FileRecords.open(file, false)) {
            for (FileLogInputStream.FileChannelRecordBatch batch : records.batches()) {
                batches.add(batch(batch, batch.position()));
                end = batch.position() + batch.sizeInBytes();
            }
        } catch (Throwable error) {
            segment.put("stoppedBy", fault(error));
        }
        segment.put("endOfLastReadableBatch", end);
        return segment;
    }

    static Map<String, Object> batch(RecordBatch b, long position) {
        Map<String, Object> m = map("position", position, "size", b.sizeInBytes(), "baseOffset", b.baseOffset(),
            "lastOffset", b.lastOffset(), "magic", (int) b.magic());
        try {
            m.put("crc", Long.toHexString(b.checksum()));
            m.put("valid", b.isValid());
            m.put("count", b.countOrNull());
            m.put("leaderEpoch", b.partitionLeaderEpoch());
            m.put("producerId", b.producerId());
            m.put("producerEpoch", b.producerEpoch());
            m.put("baseSequence", b.baseSequence());
            m.put("lastSequence", b.lastSequence());
            m.put("transactional", b.isTransactional());
            m.put("control", b.isControlBatch());
            m.put("deleteHorizonMs", b.deleteHorizonMs().isPresent() ? b.deleteHorizonMs().getAsLong() : null);
            m.put("compression", b.compressionType().name);
            m.put("timestampType", b.timestampType().name);
            m.put("maxTimestamp", b.maxTimestamp());
            // Whether its records can be read.
            if (b.isValid()) for (Record record : b) record.offset();
        } catch (Throwable error) {
            m.put("stoppedBy", fault(error));
        }
        return m;
    }

    /** A copy, opened as a broker does; stripped of all but its batches first, if asked. */
    static Object load(File from, long start, long recovery, boolean clean, boolean strip, int indexInterval) throws Exception {
        Path folder = Files.createTempDirectory("weir-load");
        try {
            return opened(folder, from, start, recovery, clean, strip, indexInterval);
        } finally {
            remove(folder);
        }
    }

    private static void remove(Path folder) throws IOException {
        try (Stream<Path> paths = Files.walk(folder)) {
            paths.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }

    private static void copy(File from, File to, boolean strip) throws IOException {
        to.mkdirs();
        for (File file : from.listFiles()) {
            String name = file.getName();
            if (strip && (name.endsWith("index") || name.endsWith(".snapshot") || name.equals("leader-epoch-checkpoint"))) continue;
            Files.copy(file.toPath(), new File(to, name).toPath(), StandardCopyOption.COPY_ATTRIBUTES);
        }
    }

    private static Object opened(
        Path folder, File from, long start, long recovery, boolean clean, boolean strip, int indexInterval
    ) throws Exception {
        File dir = new File(folder.toFile(), from.getName());
        copy(from, dir, strip);
        Map<String, Object> settings = new HashMap<>();
        settings.put("internal.segment.bytes", 16 << 20);
        settings.put("segment.index.bytes", 1 << 16);
        settings.put("index.interval.bytes", indexInterval);
        settings.put("retention.ms", -1L);
        UnifiedLog log = UnifiedLog.create(
            dir, new LogConfig(settings), Math.max(start, 0), recovery, NEVER, new BrokerTopicStats(), TIME, 900_000,
            new ProducerStateManagerConfig(86_400_000, true), 600_000, new LogDirFailureChannel(4), clean, Optional.empty(),
            new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        try {
            return answers(folder, dir, log, clean, strip);
        } finally {
            try { log.close(); } catch (Exception error) { OUT.println("# close: " + error); }
        }
    }

    private static Object answers(Path folder, File dir, UnifiedLog log, boolean clean, boolean strip) throws Exception {
        Map<String, Object> said = map("cleanShutdown", clean, "auxiliaryFilesRemovedFirst", strip,
            "logStartOffset", log.logStartOffset(), "logEndOffset", log.logEndOffset());
        log.updateHighWatermark(log.logEndOffset());
        said.put("lastStableOffsetWithHighWatermarkAtEnd", log.lastStableOffset());
        said.put("firstUnstableOffset", log.firstUnstableOffset().orElse(null));
        List<Object> epochs = new ArrayList<>();
        for (EpochEntry entry : log.leaderEpochCache().epochEntries()) epochs.add(List.of(entry.epoch(), entry.startOffset()));
        said.put("leaderEpochs", epochs);
        List<Object> segments = new ArrayList<>();
        List<Object> aborted = new ArrayList<>();
        for (LogSegment segment : log.logSegments()) {
            List<Object> offsets = new ArrayList<>();
            List<Object> times = new ArrayList<>();
            for (int i = 0; i < segment.offsetIndex().entries(); i++)
                offsets.add(List.of(segment.offsetIndex().entry(i).offset(), segment.offsetIndex().entry(i).position()));
            for (int i = 0; i < segment.timeIndex().entries(); i++)
                times.add(List.of(segment.timeIndex().entry(i).timestamp(), segment.timeIndex().entry(i).offset()));
            for (AbortedTxn entry : segment.txnIndex().allAbortedTxns())
                aborted.add(map("producerId", entry.producerId(), "firstOffset", entry.firstOffset(),
                    "lastOffset", entry.lastOffset(), "lastStableOffset", entry.lastStableOffset()));
            segments.add(map("baseOffset", segment.baseOffset(), "size", segment.size(), "largestTimestamp",
                segment.largestRecordTimestamp().isPresent() ? segment.largestRecordTimestamp().getAsLong() : null,
                "offsetIndex", offsets, "timeIndex", times));
        }
        said.put("segments", segments);
        said.put("abortedTransactions", aborted);
        said.put("producers", producers(log.producerStateManager().activeProducers().values()));
        said.put("producerStateEndOffset", log.producerStateManager().mapEndOffset());
        if (strip) {
            // The same log, walked without a snapshot: what a broker knows that has seen every append.
            said.put("producersRebuiltWithoutSnapshots", rebuilt(folder, log, log.logStartOffset()));
            long first = log.logSegments().iterator().next().baseOffset();
            said.put("producersRebuiltFromFirstSegment", rebuilt(folder, log, first));
            said.put("producersRebuiltFromLastBarrier", rebuilt(folder, log, Math.max(first, behindLastBarrier(log))));
        }
        said.put("listOffsets", listOffsets(log));
        said.put("fetches", fetches(log));
        List<Object> ends = new ArrayList<>();
        for (int epoch = 0; epoch <= Math.min(log.latestEpoch().orElse(-1) + 1, 40); epoch++) {
            int asked = epoch;
            ends.add(map("epoch", asked, "answer",
                log.endOffsetForEpoch(asked).map(end -> (Object) List.of(end.epoch(), end.offset())).orElse(null)));
        }
        said.put("endOffsetForEpoch", ends);
        return said;
    }

    /** A barrier is a control batch of type 7 without a producer; Kafka sees it, and does not know what it means. */
    private static long behindLastBarrier(UnifiedLog log) {
        long behind = 0;
        for (LogSegment segment : log.logSegments())
            for (RecordBatch batch : segment.log().batches()) {
                if (!batch.isControlBatch() || batch.producerId() != RecordBatch.NO_PRODUCER_ID) continue;
                var records = batch.iterator();
                if (records.hasNext() && ControlRecordType.parseTypeId(records.next().key()) == 7) behind = batch.nextOffset();
            }
        return behind;
    }

    private static Object rebuilt(Path folder, UnifiedLog log, long start) throws Exception {
        File empty = new File(folder.toFile(), "none-" + start);
        empty.mkdirs();
        ProducerStateManager producers = new ProducerStateManager(
            log.topicPartition(), empty, 900_000, new ProducerStateManagerConfig(86_400_000, true), TIME);
        LogSegments all = new LogSegments(log.topicPartition());
        for (LogSegment segment : log.logSegments()) all.add(segment);
        UnifiedLog.rebuildProducerState(producers, all, start, log.logEndOffset(), TIME, false, "");
        return producers(producers.activeProducers().values());
    }

    static Object producers(Collection<ProducerStateEntry> entries) {
        List<ProducerStateEntry> sorted = new ArrayList<>(entries);
        sorted.sort(Comparator.comparingLong(ProducerStateEntry::producerId));
        List<Object> out = new ArrayList<>();
        for (ProducerStateEntry entry : sorted) {
            List<Object> batches = new ArrayList<>();
            for (BatchMetadata batch : entry.batchMetadata())
                batches.add(map("firstSeq", batch.firstSeq(), "lastSeq", batch.lastSeq(), "firstOffset", batch.firstOffset(),
                    "lastOffset", batch.lastOffset(), "offsetDelta", batch.offsetDelta(), "timestamp", batch.timestamp()));
            out.add(map("producerId", entry.producerId(), "epoch", entry.producerEpoch(), "coordinatorEpoch", entry.coordinatorEpoch(),
                "lastTimestamp", entry.lastTimestamp(), "currentTxnFirstOffset",
                entry.currentTxnFirstOffset().isPresent() ? entry.currentTxnFirstOffset().getAsLong() : null, "batches", batches));
        }
        return out;
    }

    static Object listOffsets(UnifiedLog log) {
        List<Long> all = new ArrayList<>();
        for (LogSegment segment : log.logSegments())
            try {
                for (RecordBatch batch : segment.log().batches())
                    if (batch.isValid() && !batch.isControlBatch()) for (Record record : batch) all.add(record.timestamp());
            } catch (RuntimeException error) {
                // Records that nobody can read have no timestamp to ask for.
            }
        TreeSet<Long> asked = new TreeSet<>();
        for (int i = 0; i < all.size(); i += Math.max(1, all.size() / 20)) {
            asked.add(all.get(i));
            if (all.get(i) < Long.MAX_VALUE) asked.add(all.get(i) + 1);
        }
        List<Object> out = new ArrayList<>();
        for (long at : new long[] {-1, -2, -3, -4, -5}) out.add(listOffset(log, at));
        for (long at : asked) if (at >= 0) out.add(listOffset(log, at));
        return out;
    }

    private static Object listOffset(UnifiedLog log, long at) {
        try {
            return map("ask", at, "answer", log.fetchOffsetByTimestamp(at, Optional.empty()).timestampAndOffsetOpt()
                .map(x -> (Object) map("timestamp", x.timestamp, "offset", x.offset, "leaderEpoch", x.leaderEpoch.orElse(null))).orElse(null));
        } catch (Throwable error) {
            return map("ask", at, "answer", fault(error));
        }
    }

    static Object fetches(UnifiedLog log) {
        TreeSet<Long> at = new TreeSet<>();
        List<RecordBatch> batches = new ArrayList<>();
        try {
            for (LogSegment segment : log.logSegments()) for (RecordBatch batch : segment.log().batches()) batches.add(batch);
        } catch (RuntimeException error) {
            // What can be read is asked for.
        }
        for (int i = 0; i < batches.size(); i += Math.max(1, batches.size() / 12)) {
            RecordBatch batch = batches.get(i);
            at.add(batch.baseOffset());
            at.add((batch.baseOffset() + batch.lastOffset()) / 2);
            at.add(batch.lastOffset() + 1);
        }
        at.add(log.logStartOffset());
        at.add(log.logStartOffset() - 1);
        at.add(log.logEndOffset());
        at.add(log.logEndOffset() + 1);
        List<Object> out = new ArrayList<>();
        for (long offset : at) {
            if (offset < 0) continue;
            Map<String, Object> vector = map("offset", offset);
            fetch(vector, "readUncommittedMax1", log, offset, 1, FetchIsolation.HIGH_WATERMARK);
            fetch(vector, "readUncommittedMax4096", log, offset, 4096, FetchIsolation.HIGH_WATERMARK);
            fetch(vector, "readCommittedMax4096", log, offset, 4096, FetchIsolation.TXN_COMMITTED);
            out.add(vector);
        }
        return out;
    }

    private static void fetch(
        Map<String, Object> into, String name, UnifiedLog log, long offset, int max, FetchIsolation isolation
    ) {
        try {
            FetchDataInfo read = log.read(offset, max, isolation, true);
            var batches = read.records.batches().iterator();
            Map<String, Object> said = map("bytes", read.records.sizeInBytes(),
                "firstBatchBaseOffset", batches.hasNext() ? batches.next().baseOffset() : null);
            if (read.abortedTransactions.isPresent()) {
                List<Object> aborted = new ArrayList<>();
                for (FetchResponseData.AbortedTransaction entry : read.abortedTransactions.get())
                    aborted.add(List.of(entry.producerId(), entry.firstOffset()));
                said.put("aborted", aborted);
            }
            into.put(name, said);
        } catch (Throwable error) {
            into.put(name, map("exception", error.getClass().getSimpleName()));
        }
    }

    /** DumpLogSegments over every file of a copy, since it makes indexes that are missing; with paths from the folder on. */
    static String dump(File from) throws Exception {
        Path folder = Files.createTempDirectory("weir-load");
        try {
            File partition = new File(folder.toFile(), from.getName());
            copy(from, partition, false);
            return dumped(folder.toFile(), partition);
        } finally {
            remove(folder);
        }
    }

    private static String dumped(File root, File partition) {
        List<String> files = new ArrayList<>();
        for (File file : partition.listFiles())
            if (file.isFile() && file.getName().matches("\\d{20}\\.(log|index|timeindex|txnindex|snapshot)")) files.add(file.getPath());
        files.sort(Comparator.naturalOrder());
        StringBuilder all = new StringBuilder();
        PrintStream error = System.err;
        for (String file : files) {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            PrintStream to = new PrintStream(bytes, true, StandardCharsets.UTF_8);
            System.setOut(to);
            System.setErr(to);
            try {
                DumpLogSegments.main(new String[] {"--print-data-log", "--files", file});
            } catch (Throwable thrown) {
                to.println("# thrown: " + thrown);
            } finally {
                System.setOut(OUT);
                System.setErr(error);
            }
            all.append(bytes.toString(StandardCharsets.UTF_8).replace(root.getPath() + "/", ""));
        }
        return all.toString();
    }

    static Map<String, Object> map(Object... pairs) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) map.put((String) pairs[i], pairs[i + 1]);
        return map;
    }

    static void json(StringBuilder to, Object value) {
        if (value instanceof Map<?, ?> map) {
            String between = "{";
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                to.append(between);
                text(to, (String) entry.getKey());
                to.append(": ");
                json(to, entry.getValue());
                between = ",\n";
            }
            to.append(map.isEmpty() ? "{}" : "}");
        } else if (value instanceof Collection<?> list) {
            String between = "[";
            for (Object item : list) {
                to.append(between);
                json(to, item);
                between = ", ";
            }
            to.append(list.isEmpty() ? "[]" : "]");
        } else if (value == null || value instanceof Number || value instanceof Boolean) {
            to.append(value);
        } else {
            text(to, value.toString());
        }
    }

    private static void text(StringBuilder to, String text) {
        to.append('"');
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') to.append('\\').append(c);
            else if (c < 0x20 || c > 0x7e) to.append(String.format("\\u%04x", (int) c));
            else to.append(c);
        }
        to.append('"');
    }
}
