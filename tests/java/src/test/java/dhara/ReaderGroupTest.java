package dhara;

import io.pravega.client.stream.Checkpoint;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.ReaderGroup;
import io.pravega.client.stream.ReinitializationRequiredException;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamCut;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Reader groups: sharing, checkpoints, cuts, bounds. */
class ReaderGroupTest {
    private static final int KEYS = 10;

    @RegisterExtension
    final World world = new World();

    /** Two readers that one thread asks in turn, so that a test decides who has read what. */
    private static final class Pair {
        final List<EventStreamReader<String>> readers = new ArrayList<>();
        final List<String> events = new ArrayList<>();
        private final Set<Integer> passed = new HashSet<>();
        private String awaited;

        Pair(World world, ReaderGroup group, String prefix) {
            readers.add(world.reader(group, prefix + "-1"));
            readers.add(world.reader(group, prefix + "-2"));
        }

        void readUntil(int count) {
            long deadline = System.nanoTime() + World.STUCK_SECONDS * 1_000_000_000L;
            while (events.size() < count) {
                assertTrue(System.nanoTime() < deadline, () -> "only " + events.size() + " of " + count);
                turn(null);
            }
        }

        /** Reads on until the checkpoint is complete; what a reader reads after it goes to {@code later}. */
        Checkpoint reach(World world, ReaderGroup group, String name, List<String> later) throws Exception {
            awaited = name;
            passed.clear();
            CompletableFuture<Checkpoint> checkpoint = group.initiateCheckpoint(name, world.executor);
            long deadline = System.nanoTime() + World.STUCK_SECONDS * 1_000_000_000L;
            while (!checkpoint.isDone()) {
                assertTrue(System.nanoTime() < deadline, "the checkpoint is not reached");
                turn(later);
            }
            return checkpoint.get();
        }

        private void turn(List<String> later) {
            for (int index = 0; index < readers.size(); index++) {
                EventRead<String> read = readers.get(index).readNextEvent(50);
                if (read.isCheckpoint() && read.getCheckpointName().equals(awaited)) {
                    passed.add(index);
                } else if (read.getEvent() != null) {
                    (later != null && passed.contains(index) ? later : events).add(read.getEvent());
                }
            }
        }
    }

    @Test
    void twoReadersFollowASplitAndAMerge() throws Exception {
        Stream stream = world.stream("scaled", 2);
        var writer = world.writer(stream);
        Pair pair = new Pair(world, world.group("group", stream), "reader");
        Ledger.write(writer, 0, 200, KEYS);
        pair.readUntil(100);
        world.split(stream, 0);
        Ledger.write(writer, 200, 400, KEYS);
        pair.readUntil(300);
        world.merge(stream, 1);
        Ledger.write(writer, 400, 600, KEYS);
        pair.readUntil(600);
        Ledger.assertOnceAndInOrder(pair.events, KEYS, 600);
    }

    @Test
    void checkpointSplitsTheEventsAndAResetReturnsToIt() throws Exception {
        Stream stream = world.stream("checkpointed", 3);
        Ledger.write(world.writer(stream), 0, 300, KEYS);
        ReaderGroup group = world.group("group", stream);
        Pair first = new Pair(world, group, "first");
        first.readUntil(120);
        List<String> later = new ArrayList<>();
        Checkpoint checkpoint = first.reach(world, group, "checkpoint", later);
        assertEquals("checkpoint", checkpoint.getName());
        List<String> before = List.copyOf(first.events);

        Checkpoint stored = Checkpoint.fromBytes(checkpoint.toBytes());
        group.resetReaderGroup(World.quick().startFromCheckpoint(stored).build());
        assertThrows(ReinitializationRequiredException.class, () -> {
            while (true) {
                first.turn(null);
            }
        });
        Pair second = new Pair(world, group, "second");
        second.readUntil(300 - before.size());
        List<String> all = new ArrayList<>(before);
        all.addAll(second.events);
        Ledger.assertOnceAndInOrder(all, KEYS, 300);
        assertTrue(second.events.containsAll(later));
    }

    @Test
    void checkpointTakenBetweenScalingsCanBeReturnedTo() throws Exception {
        Stream stream = world.stream("rescaled", 1);
        var writer = world.writer(stream);
        Ledger.write(writer, 0, 100, KEYS);
        world.split(stream, 0);
        Ledger.write(writer, 100, 200, KEYS);
        ReaderGroup group = world.group("group", stream);
        Pair first = new Pair(world, group, "first");
        first.readUntil(120);
        Checkpoint checkpoint = first.reach(world, group, "between", new ArrayList<>());
        List<String> all = new ArrayList<>(first.events);
        world.merge(stream, 0);
        Ledger.write(writer, 200, 300, KEYS);
        group.resetReaderGroup(World.quick().startFromCheckpoint(checkpoint).build());
        Pair second = new Pair(world, group, "second");
        second.readUntil(300 - all.size());
        all.addAll(second.events);
        Ledger.assertOnceAndInOrder(all, KEYS, 300);
    }

    @Test
    void segmentsOfAClosedReaderPassToAnother() throws Exception {
        Stream stream = world.stream("handover", 3);
        Ledger.write(world.writer(stream), 0, 300, KEYS);
        ReaderGroup group = world.group("group", stream);
        List<String> events = new ArrayList<>();
        for (String id : List.of("one", "two", "three")) {
            EventStreamReader<String> reader = world.reader(group, id);
            events.addAll(Ledger.read(reader, 100));
            assertEquals(Set.of(id), group.getOnlineReaders());
            reader.close();
        }
        Ledger.assertOnceAndInOrder(events, KEYS, 300);
        assertTrue(group.getOnlineReaders().isEmpty());
    }

    @Test
    void offlineReaderIsContinuedFromItsPosition() throws Exception {
        Stream stream = world.stream("offline", 2);
        Ledger.write(world.writer(stream), 0, 200, KEYS);
        ReaderGroup group = world.group("group", stream);
        EventStreamReader<String> lost = world.reader(group, "lost");
        List<String> events = new ArrayList<>();
        EventRead<String> last = null;
        while (events.size() < 80) {
            EventRead<String> read = lost.readNextEvent(2000);
            if (read.getEvent() != null) {
                events.add(read.getEvent());
                last = read;
            }
        }
        Ledger.read(lost, 10); // read, but not part of the position that is handed over
        group.readerOffline("lost", last.getPosition());
        events.addAll(Ledger.read(world.reader(group, "heir"), 120));
        Ledger.assertOnceAndInOrder(events, KEYS, 200);
    }

    @Test
    void groupBetweenTwoCutsReadsExactlyWhatIsBetween() throws Exception {
        Stream stream = world.stream("bounded", 2);
        var writer = world.writer(stream);
        Ledger.write(writer, 0, 100, KEYS);
        StreamCut from = tail(stream);
        world.split(stream, 0);
        Ledger.write(writer, 100, 200, KEYS);
        StreamCut to = tail(stream);
        Ledger.write(writer, 200, 300, KEYS);
        ReaderGroup group = world.group("group", World.quick().stream(stream, from, to).build());
        EventStreamReader<String> reader = world.reader(group, "reader");
        List<String> events = Ledger.read(reader, 100);
        assertNull(reader.readNextEvent(2000).getEvent(), "nothing after the second cut");
        Ledger.byKey(events).forEach((key, numbers) -> assertEquals(Ledger.numbers(10, 20), numbers, key));
    }

    @Test
    void generatedCutStartsAnotherGroup() throws Exception {
        Stream stream = world.stream("generated", 2);
        Ledger.write(world.writer(stream), 0, 200, KEYS);
        ReaderGroup group = world.group("group", stream);
        EventStreamReader<String> reader = world.reader(group, "reader");
        List<String> events = new ArrayList<>(Ledger.read(reader, 90));
        CompletableFuture<Map<Stream, StreamCut>> cuts = group.generateStreamCuts(world.executor);
        while (!cuts.isDone()) { // a cut is made by what the readers report
            EventRead<String> read = reader.readNextEvent(100);
            if (read.getEvent() != null) {
                events.add(read.getEvent());
            }
        }
        StreamCut cut = StreamCut.from(cuts.get().get(stream).asText());
        Ledger.write(world.writer(stream), 200, 300, KEYS);
        assertTrue(world.streams.sealStream(world.scope, stream.getStreamName()));
        ReaderGroup other = world.group("other", World.quick().stream(stream, cut).build());
        List<String> rest = Ledger.drain(world.reader(other, "reader-2"));
        assertTrue(rest.stream().noneMatch(new HashSet<>(events.subList(0, 90))::contains), "read before the cut");
        Ledger.byKey(rest).forEach((key, numbers) -> {
            assertEquals(Ledger.numbers(numbers.get(0), 30), numbers, key);
        });
        Set<String> all = new HashSet<>(events);
        all.addAll(rest);
        assertEquals(300, all.size(), "nothing lies between");
    }

    @Test
    void groupOverTwoStreamsReadsBoth() throws Exception {
        Stream left = world.stream("left", 2);
        Stream right = world.stream("right", 1);
        Ledger.write(world.writer(left), 0, 50, KEYS);
        Ledger.write(world.writer(right), 0, 50, KEYS);
        ReaderGroup group = world.group("group", left, right);
        List<String> events = Ledger.read(world.reader(group, "reader"), 100);
        Ledger.byKey(events).forEach((key, numbers) -> {
            assertEquals(List.of(0, 0, 1, 1, 2, 2, 3, 3, 4, 4), numbers.stream().sorted().toList(), key);
        });
        assertEquals(Set.of(left.getScopedName(), right.getScopedName()), group.getStreamNames());
    }

    @Test
    void deletedGroupIsGone() {
        Stream stream = world.stream("grouped", 1);
        world.group("group", stream);
        world.groups.deleteReaderGroup("group");
        assertThrows(RuntimeException.class, () -> world.groups.getReaderGroup("group"));
        ReaderGroup again = world.group("group", stream);
        Ledger.write(world.writer(stream), 0, 10, 2);
        Ledger.assertOnceAndInOrder(Ledger.read(world.reader(again, "reader"), 10), 2, 10);
    }

    private StreamCut tail(Stream stream) throws Exception {
        return World.inTime(world.streams.fetchStreamInfo(world.scope, stream.getStreamName())).getTailStreamCut();
    }
}
