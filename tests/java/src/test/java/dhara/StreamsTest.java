package dhara;

import io.pravega.client.admin.StreamInfo;
import io.pravega.client.stream.RetentionPolicy;
import io.pravega.client.stream.ScalingPolicy;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamConfiguration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Scopes and streams. */
class StreamsTest {
    @RegisterExtension
    final World world = new World();

    @Test
    void scopeAndStreamAreCreatedOnceAndDeletedOnce() {
        assertFalse(world.streams.createScope(world.scope));
        world.stream("once", 2);
        assertFalse(world.streams.createStream(world.scope, "once", StreamConfiguration.builder().build()));
        assertTrue(world.streams.checkStreamExists(world.scope, "once"));
        assertThrows(RuntimeException.class, () -> world.streams.deleteScope(world.scope));
        assertTrue(world.streams.sealStream(world.scope, "once"));
        assertTrue(world.streams.deleteStream(world.scope, "once"));
        assertFalse(world.streams.checkStreamExists(world.scope, "once"));
        assertFalse(world.streams.deleteStream(world.scope, "once"));
        assertTrue(world.streams.deleteScope(world.scope));
        assertFalse(world.streams.checkScopeExists(world.scope));
    }

    @Test
    void listingShowsEachStreamOnceAndTagsSelect() {
        Set<String> names = new TreeSet<>();
        for (int number = 0; number < 12; number++) {
            names.add("listed-" + number);
            String tag = number % 3 == 0 ? "third" : "other";
            assertTrue(world.streams.createStream(world.scope, "listed-" + number,
                    StreamConfiguration.builder().tag(tag).build()));
        }
        List<String> found = new ArrayList<>();
        world.streams.listStreams(world.scope).forEachRemaining(stream -> {
            if (!stream.getStreamName().startsWith("_")) {
                found.add(stream.getStreamName());
            }
        });
        assertEquals(names.size(), found.size());
        assertEquals(names, new TreeSet<>(found));

        Set<String> tagged = new TreeSet<>();
        world.streams.listStreams(world.scope, "third").forEachRemaining(stream -> tagged.add(stream.getStreamName()));
        assertEquals(Set.of("listed-0", "listed-3", "listed-6", "listed-9"), tagged);
        assertEquals(List.of("third"), List.copyOf(world.streams.getStreamTags(world.scope, "listed-3")));
    }

    @Test
    void configurationIsKeptAndUpdated() throws Exception {
        Stream stream = world.stream("configured", 1);
        StreamConfiguration update = StreamConfiguration.builder()
                .scalingPolicy(ScalingPolicy.byEventRate(100, 2, 3))
                .retentionPolicy(RetentionPolicy.bySizeBytes(1_000_000)).tag("tag").build();
        assertTrue(world.streams.updateStream(world.scope, stream.getStreamName(), update));
        StreamInfo info = World.inTime(world.streams.fetchStreamInfo(world.scope, stream.getStreamName()));
        assertEquals(update, info.getStreamConfiguration());
        assertFalse(info.isSealed());
    }

    @Test
    void truncationMovesTheHead() throws Exception {
        Stream stream = world.stream("truncated", 2);
        var writer = world.writer(stream);
        Ledger.write(writer, 0, 100, 10);
        StreamInfo before = World.inTime(world.streams.fetchStreamInfo(world.scope, stream.getStreamName()));
        Ledger.write(writer, 100, 150, 10);
        assertTrue(world.streams.truncateStream(world.scope, stream.getStreamName(), before.getTailStreamCut()));
        StreamInfo after = World.inTime(world.streams.fetchStreamInfo(world.scope, stream.getStreamName()));
        assertEquals(before.getTailStreamCut(), after.getHeadStreamCut());
        List<String> events = Ledger.read(world.reader(world.group("group", stream), "reader"), 50);
        Ledger.byKey(events).forEach((key, numbers) -> assertEquals(Ledger.numbers(10, 15), numbers, key));
    }

    @Test
    void scopeIsDeletedWithAllItHolds() throws Exception {
        Stream stream = world.stream("inside", 2);
        Ledger.write(world.writer(stream), 0, 10, 2);
        try (var reader = world.reader(world.group("group", stream), "reader")) {
            Ledger.read(reader, 10);
        }
        assertTrue(world.streams.deleteScopeRecursive(world.scope));
        assertFalse(world.streams.checkScopeExists(world.scope));
    }
}
