package dhara;

import io.pravega.client.BatchClientFactory;
import io.pravega.client.batch.SegmentRange;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamCut;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

import static org.junit.jupiter.api.Assertions.assertEquals;

/** Batch reads: each segment range by itself, without a group. */
class BatchTest {
    private static final int KEYS = 10;

    @RegisterExtension
    final World world = new World();
    private BatchClientFactory factory;

    @BeforeEach
    void open() {
        factory = world.keep(BatchClientFactory.withScope(world.scope, world.config));
    }

    private List<List<String>> read(Stream stream, StreamCut from, StreamCut to) {
        List<List<String>> segments = new ArrayList<>();
        List<SegmentRange> ranges = new ArrayList<>();
        factory.getSegments(stream, from, to).getIterator().forEachRemaining(ranges::add);
        for (SegmentRange range : ranges) {
            List<String> events = new ArrayList<>();
            try (var segment = factory.readSegment(range, new UTF8StringSerializer())) {
                segment.forEachRemaining(events::add);
            }
            segments.add(events);
        }
        return segments;
    }

    private StreamCut tail(Stream stream) throws Exception {
        return World.inTime(world.streams.fetchStreamInfo(world.scope, stream.getStreamName())).getTailStreamCut();
    }

    @Test
    void wholeStreamIsReadOverScalings() throws Exception {
        Stream stream = world.stream("whole", 2);
        var writer = world.writer(stream);
        Ledger.write(writer, 0, 100, KEYS);
        world.split(stream, 0);
        Ledger.write(writer, 100, 200, KEYS);
        world.merge(stream, 1);
        Ledger.write(writer, 200, 300, KEYS);
        List<List<String>> segments = read(stream, StreamCut.UNBOUNDED, StreamCut.UNBOUNDED);
        assertEquals(5, segments.size(), "two at first, two from the split, one from the merge");
        List<String> all = segments.stream().flatMap(List::stream).toList();
        assertEquals(300, all.size());
        Ledger.byKey(all).forEach((key, numbers) -> {
            assertEquals(Ledger.numbers(0, 30), numbers.stream().sorted().toList(), key);
        });
    }

    @Test
    void rangeBetweenTwoCutsHasExactlyItsEvents() throws Exception {
        Stream stream = world.stream("between", 2);
        var writer = world.writer(stream);
        Ledger.write(writer, 0, 100, KEYS);
        StreamCut from = tail(stream);
        world.split(stream, 1);
        Ledger.write(writer, 100, 200, KEYS);
        StreamCut to = StreamCut.from(tail(stream).asText());
        Ledger.write(writer, 200, 300, KEYS);
        List<String> all = read(stream, from, to).stream().flatMap(List::stream).toList();
        assertEquals(100, all.size());
        Ledger.byKey(all).forEach((key, numbers) -> assertEquals(Ledger.numbers(10, 20), numbers, key));
    }
}
