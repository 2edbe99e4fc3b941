// What Kafka's own decompressors make of bytes.
//
// usage: Decompress FILE
// FILE has lines "name codec verdict... hex", where codec is Kafka's number and hex may be "-" for no bytes; a line that
// starts with "#" says nothing. Prints "name ok SIZE CRC32" or "name error" a line.
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.zip.CRC32;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.internals.BufferSupplier;

public final class Decompress {
    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            if (line.isBlank() || line.startsWith("#")) {
                continue;
            }
            String[] words = line.split(" ");
            String hex = words[words.length - 1];
            byte[] bytes = HexFormat.of().parseHex(hex.equals("-") ? "" : hex);
            System.out.println(words[0] + " " + verdict(Integer.parseInt(words[1]), bytes));
        }
    }

    private static String verdict(int codec, byte[] bytes) {
        CRC32 crc = new CRC32();
        long size = 0;
        // A block of nothing is answered with 0, and is no end.
        int empty = 0;
        byte[] buffer = new byte[8192];
        try (InputStream in = Compression.of(CompressionType.forId(codec)).build()
                .wrapForInput(ByteBuffer.wrap(bytes), RecordBatch.MAGIC_VALUE_V2, BufferSupplier.NO_CACHING)) {
            for (int read; (read = in.read(buffer)) != -1 && empty < 1000; ) {
                empty += read == 0 ? 1 : 0;
                crc.update(buffer, 0, read);
                size += read;
            }
            return "ok " + size + " " + String.format("%08x", crc.getValue());
        } catch (Exception | Error error) {
            return "error";
        }
    }
}
