package dhara;

import io.pravega.client.ByteStreamClientFactory;
import io.pravega.client.byteStream.ByteStreamReader;
import io.pravega.client.byteStream.ByteStreamWriter;
import java.util.Random;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Byte streams. */
class ByteStreamTest {
    @RegisterExtension
    final World world = new World();
    private ByteStreamClientFactory factory;

    @BeforeEach
    void open() {
        world.stream("bytes", 1);
        factory = world.keep(ByteStreamClientFactory.withScope(world.scope, world.config));
    }

    /** Reads {@code length} bytes; readNBytes would ask for none at the end, and this reader waits even for those. */
    private static byte[] read(ByteStreamReader reader, int length) throws Exception {
        byte[] bytes = new byte[length];
        for (int filled = 0; filled < length; ) {
            int count = reader.read(bytes, filled, length - filled);
            assertTrue(count > 0, "the end is not here");
            filled += count;
        }
        return bytes;
    }

    @Test
    void bytesAreReadBackAtAnyOffset() throws Exception {
        byte[] bytes = new byte[5_000_000];
        new Random(7).nextBytes(bytes);
        ByteStreamWriter writer = world.keep(factory.createByteStreamWriter("bytes"));
        for (int at = 0; at < bytes.length; at += 700_000) {
            writer.write(bytes, at, Math.min(700_000, bytes.length - at));
        }
        writer.flush();
        assertEquals(bytes.length, writer.fetchTailOffset());
        ByteStreamReader reader = world.keep(factory.createByteStreamReader("bytes"));
        assertArrayEquals(bytes, read(reader, bytes.length));
        for (int offset : new int[] {0, 1, 1_048_575, 4_999_990}) {
            reader.seekToOffset(offset);
            byte[] expected = new byte[10];
            System.arraycopy(bytes, offset, expected, 0, 10);
            assertArrayEquals(expected, read(reader, 10));
            assertEquals(offset + 10, reader.getOffset());
        }
    }

    @Test
    void truncationMovesTheHead() throws Exception {
        ByteStreamWriter writer = world.keep(factory.createByteStreamWriter("bytes"));
        writer.write("0123456789".getBytes());
        writer.flush();
        writer.truncateDataBefore(4);
        assertEquals(4, writer.fetchHeadOffset());
        ByteStreamReader reader = world.keep(factory.createByteStreamReader("bytes"));
        assertEquals(4, reader.fetchHeadOffset());
        reader.seekToOffset(4);
        assertEquals("456789", new String(read(reader, 6)));
    }

    @Test
    void sealedByteStreamEnds() throws Exception {
        ByteStreamWriter writer = factory.createByteStreamWriter("bytes");
        writer.write("all".getBytes());
        writer.closeAndSeal();
        ByteStreamReader reader = world.keep(factory.createByteStreamReader("bytes"));
        assertEquals("all", new String(reader.readAllBytes()));
        assertEquals(-1, reader.read());
        assertEquals(3, reader.fetchTailOffset());
    }
}
