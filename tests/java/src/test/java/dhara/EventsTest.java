package dhara;

import io.pravega.client.stream.EventPointer;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.impl.ByteArraySerializer;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.extension.RegisterExtension;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Events: writing, and reading them back. */
class EventsTest {
    @RegisterExtension
    final World world = new World();

    @Test
    void eventOfAnySizeIsReadBack() throws Exception {
        Stream stream = world.stream("sizes", 1);
        int[] sizes = {0, 1, 7, 100, 8_191, 65_536, 1 << 20, (8 << 20) - 8, (8 << 20) + 1, 20_000_000};
        List<byte[]> written = new ArrayList<>();
        EventStreamWriter<byte[]> writer = world.largeWriter(stream);
        for (int size : sizes) {
            byte[] event = new byte[size];
            new Random(size).nextBytes(event);
            written.add(event);
            World.inTime(writer.writeEvent("key", event));
        }
        var group = world.group("group", stream);
        var reader = world.keep(world.events.createReader("reader", group.getGroupName(), new ByteArraySerializer(),
                ReaderConfig.builder().build()));
        for (byte[] event : written) {
            EventRead<byte[]> read = reader.readNextEvent(30_000);
            assertArrayEquals(event, read.getEvent(), "of " + event.length + " bytes");
        }
    }

    @Test
    void writesAreAcknowledgedAndReadInOrder() throws Exception {
        Stream stream = world.stream("ordered", 4);
        var writer = world.writer(stream);
        List<CompletableFuture<Void>> acknowledged = new ArrayList<>();
        for (int number = 0; number < 2000; number++) {
            acknowledged.add(writer.writeEvent("key-" + number % 20, "key-" + number % 20 + ":" + number / 20));
        }
        for (var each : acknowledged) {
            World.inTime(each);
        }
        var events = Ledger.read(world.reader(world.group("group", stream), "reader"), 2000);
        Ledger.assertOnceAndInOrder(events, 20, 2000);
    }

    @Test
    void batchOfEventsIsWrittenInOnePiece() throws Exception {
        Stream stream = world.stream("batches", 2);
        var writer = world.writer(stream);
        for (int start = 0; start < 100; start += 10) {
            List<String> batch = Ledger.numbers(start, start + 10).stream().map(number -> "key:" + number).toList();
            World.inTime(writer.writeEvents("key", batch));
        }
        var events = Ledger.read(world.reader(world.group("group", stream), "reader"), 100);
        assertEquals(Ledger.numbers(0, 100), Ledger.byKey(events).get("key"));
    }

    @Test
    void eventIsFetchedByItsPointer() throws Exception {
        Stream stream = world.stream("pointers", 2);
        Ledger.write(world.writer(stream), 0, 20, 4);
        var reader = world.reader(world.group("group", stream), "reader");
        List<EventRead<String>> reads = new ArrayList<>();
        while (reads.size() < 20) {
            EventRead<String> read = reader.readNextEvent(2000);
            if (read.getEvent() != null) {
                reads.add(read);
            }
        }
        for (EventRead<String> read : reads) {
            EventPointer pointer = EventPointer.fromBytes(read.getEventPointer().toBytes());
            assertEquals(read.getEvent(), reader.fetchEvent(pointer));
            assertEquals(read.getEvent(),
                    World.inTime(world.streams.fetchEvent(pointer, new UTF8StringSerializer())));
        }
    }

    @Test
    void writerOfASealedStreamIsToldSo() throws Exception {
        Stream stream = world.stream("sealed", 2);
        var writer = world.writer(stream);
        Ledger.write(writer, 0, 100, 4);
        assertTrue(world.streams.sealStream(world.scope, stream.getStreamName()));
        assertThrows(Exception.class, () -> {
            World.inTime(writer.writeEvent("key-0", "late:0"));
            writer.flush();
        });
        var events = Ledger.drain(world.reader(world.group("group", stream), "reader"));
        Ledger.assertOnceAndInOrder(events, 4, 100);
    }

    /** Connections, tokens and group membership outlive a minute without traffic. Slow, so only when SLOW is set. */
    @Test
    @EnabledIfEnvironmentVariable(named = "SLOW", matches = "1")
    void writerAndReaderGoOnAfterAnIdleMinute() throws Exception {
        Stream stream = world.stream("idle", 2);
        var writer = world.writer(stream);
        var reader = world.reader(world.group("group", stream), "reader");
        Ledger.write(writer, 0, 10, 2);
        List<String> events = new ArrayList<>(Ledger.read(reader, 10));
        TimeUnit.SECONDS.sleep(65); // idleness itself is what is tested
        Ledger.write(writer, 10, 20, 2);
        events.addAll(Ledger.read(reader, 10));
        Ledger.assertOnceAndInOrder(events, 2, 20);
    }
}
