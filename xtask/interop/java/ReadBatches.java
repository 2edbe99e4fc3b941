// What Kafka's own classes say of record sets that weir built.
//
// usage: ReadBatches FOLDER
// Prints one JSON object a line for each file FOLDER/*.bin, by name: "name", "batches" with every field of every batch and
// record, and "error" with what ended the walk, if anything did. A batch's CRC is checked by ensureValid.
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.Arrays;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.Utils;

public final class ReadBatches {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        File[] files = new File(args[0]).listFiles((folder, name) -> name.endsWith(".bin"));
        Arrays.sort(files);
        for (File file : files) {
            ObjectNode item = JSON.createObjectNode();
            item.put("name", file.getName().substring(0, file.getName().length() - 4));
            ArrayNode batches = item.putArray("batches");
            byte[] bytes = Files.readAllBytes(file.toPath());
            int size = 0;
            try {
                for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches()) {
                    batch.ensureValid();
                    size += batch.sizeInBytes();
                    batches.add(describe(batch));
                }
                if (size != bytes.length) {
                    item.put("error", "batches end at " + size + " of " + bytes.length);
                }
            } catch (Exception error) {
                item.put("error", error.toString());
            }
            System.out.println(item);
        }
    }

    private static ObjectNode describe(MutableRecordBatch batch) {
        ObjectNode json = JSON.createObjectNode();
        json.put("size", batch.sizeInBytes());
        json.put("baseOffset", batch.baseOffset());
        json.put("lastOffset", batch.lastOffset());
        json.put("nextOffset", batch.nextOffset());
        json.put("magic", (int) batch.magic());
        json.put("count", batch.countOrNull());
        json.put("leaderEpoch", batch.partitionLeaderEpoch());
        json.put("producerId", batch.producerId());
        json.put("producerEpoch", (int) batch.producerEpoch());
        json.put("baseSequence", batch.baseSequence());
        json.put("lastSequence", batch.lastSequence());
        json.put("transactional", batch.isTransactional());
        json.put("control", batch.isControlBatch());
        if (batch.deleteHorizonMs().isPresent()) {
            json.put("deleteHorizonMs", batch.deleteHorizonMs().getAsLong());
        } else {
            json.putNull("deleteHorizonMs");
        }
        json.put("compression", batch.compressionType().name);
        json.put("timestampType", batch.timestampType().name);
        json.put("maxTimestamp", batch.maxTimestamp());
        ArrayNode records = json.putArray("records");
        for (Record record : batch) {
            record.ensureValid();
            records.add(describe(batch, record));
        }
        return json;
    }

    private static ObjectNode describe(MutableRecordBatch batch, Record record) {
        ObjectNode json = JSON.createObjectNode();
        json.put("offset", record.offset());
        json.put("timestamp", record.timestamp());
        json.put("sequence", record.sequence());
        json.put("key", bytes(record.key()));
        json.put("value", bytes(record.value()));
        ArrayNode headers = json.putArray("headers");
        for (Header header : record.headers()) {
            ObjectNode one = headers.addObject();
            one.put("key", header.key());
            one.put("value", header.value());
        }
        if (batch.isControlBatch()) {
            json.put("controlTypeId", (int) ControlRecordType.parseTypeId(record.key()));
            ControlRecordType type = ControlRecordType.parse(record.key());
            if (type == ControlRecordType.ABORT || type == ControlRecordType.COMMIT) {
                json.put("coordinatorEpoch", EndTransactionMarker.deserialize(record).coordinatorEpoch());
            }
        }
        return json;
    }

    private static byte[] bytes(ByteBuffer buffer) {
        return buffer == null ? null : Utils.toArray(buffer);
    }
}
