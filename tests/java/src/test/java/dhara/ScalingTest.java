package dhara;

import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.ReaderGroup;
import io.pravega.client.stream.Stream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Splits and merges under a writer and a group of two readers. EVENTS is the least number of events (20000). */
class ScalingTest {
    private static final int KEYS = 50;
    private static final int PHASES = 3;

    @RegisterExtension
    final World world = new World();

    /** Writes a quota, tells so, and goes on slowly until it is released; three times. */
    private static final class Writer {
        private final EventStreamWriter<String> writer;
        private final int quota;
        private final List<CountDownLatch> quotas = new ArrayList<>();
        private final List<CountDownLatch> releases = new ArrayList<>();

        Writer(EventStreamWriter<String> writer, int quota) {
            this.writer = writer;
            this.quota = quota;
            for (int phase = 0; phase < PHASES; phase++) {
                quotas.add(new CountDownLatch(1));
                releases.add(new CountDownLatch(1));
            }
        }

        int run() {
            int written = 0;
            for (int phase = 0; phase < PHASES; phase++) {
                Ledger.write(writer, written, written + quota, KEYS);
                written += quota;
                quotas.get(phase).countDown();
                while (releases.get(phase).getCount() > 0) {
                    Ledger.write(writer, written, written + 1, KEYS);
                    written++;
                }
            }
            return written;
        }

        void finishPhase(int phase) throws InterruptedException {
            assertTrue(quotas.get(phase).await(300, TimeUnit.SECONDS));
            releases.get(phase).countDown();
        }
    }

    @Test
    void eachEventOnceAndInOrderOverSplitAndMerge() throws Exception {
        int count = Integer.parseInt(System.getenv().getOrDefault("EVENTS", "20000"));
        Stream stream = world.stream("large", 4);
        ReaderGroup group = world.group("group", stream);
        // Of both, in the order of arrival: a key may move from one reader to the other and back.
        List<String> events = Collections.synchronizedList(new ArrayList<>());
        List<CompletableFuture<Integer>> reading = new ArrayList<>();
        for (String id : List.of("reader-1", "reader-2")) {
            EventStreamReader<String> reader = world.reader(group, id);
            reading.add(world.start(() -> Ledger.drain(reader, 300, events)));
        }
        Writer writer = new Writer(world.writer(stream), count / PHASES + 1);
        CompletableFuture<Integer> writing = world.start(writer::run);
        writer.finishPhase(0);
        world.split(stream, 1);
        writer.finishPhase(1);
        world.merge(stream, 2);
        writer.finishPhase(2);
        int written = World.inTime(writing);
        assertTrue(written >= count);
        assertTrue(world.streams.sealStream(world.scope, stream.getStreamName()));

        for (CompletableFuture<Integer> each : reading) {
            assertTrue(each.get(300, TimeUnit.SECONDS) > 0, "both readers take part");
        }
        Ledger.assertOnceAndInOrder(events, KEYS, written);
    }

    @Test
    void rangesCoverTheKeySpaceAfterEachScaling() throws Exception {
        Stream stream = world.stream("ranges", 2);
        world.split(stream, 0);
        world.split(stream, 2);
        world.merge(stream, 1);
        List<Double> bounds = new ArrayList<>();
        world.current(stream).forEach(owned -> bounds.addAll(List.of(owned.low(), owned.high())));
        assertEquals(List.of(0.0, 0.25, 0.25, 0.75, 0.75, 1.0), bounds);
    }

    @Test
    void writerIdleOverTwoScalingsFindsItsWay() throws Exception {
        Stream stream = world.stream("idle", 1);
        var writer = world.writer(stream);
        Ledger.write(writer, 0, 100, KEYS);
        world.split(stream, 0);
        world.split(stream, 1);
        Ledger.write(writer, 100, 200, KEYS);
        world.merge(stream, 0);
        world.merge(stream, 0);
        Ledger.write(writer, 200, 300, KEYS);
        assertTrue(world.streams.sealStream(world.scope, stream.getStreamName()));
        var events = Ledger.drain(world.reader(world.group("group", stream), "reader"));
        Ledger.assertOnceAndInOrder(events, KEYS, 300);
    }
}
