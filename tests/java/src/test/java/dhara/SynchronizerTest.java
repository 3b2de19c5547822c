package dhara;

import io.pravega.client.SynchronizerClientFactory;
import io.pravega.client.state.InitialUpdate;
import io.pravega.client.state.Revision;
import io.pravega.client.state.Revisioned;
import io.pravega.client.state.RevisionedStreamClient;
import io.pravega.client.state.StateSynchronizer;
import io.pravega.client.state.SynchronizerConfig;
import io.pravega.client.state.Update;
import io.pravega.client.stream.TruncatedDataException;
import io.pravega.client.stream.impl.JavaSerializer;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Revisioned streams and the state synchronizer, which reader groups are built on. */
class SynchronizerTest {
    private static final SynchronizerConfig CONFIG = SynchronizerConfig.builder().build();

    @RegisterExtension
    final World world = new World();
    private SynchronizerClientFactory factory;

    @BeforeEach
    void open() {
        world.stream("shared", 1);
        factory = world.keep(SynchronizerClientFactory.withScope(world.scope, world.config));
    }

    /** A number that several clients add to. */
    record Sum(String getScopedStreamName, Revision getRevision, long value) implements Revisioned {
    }

    /** Adds to the number. */
    record Add(long amount) implements Update<Sum>, Serializable {
        @Override
        public Sum applyTo(Sum old, Revision revision) {
            return new Sum(old.getScopedStreamName(), revision, old.value() + amount);
        }
    }

    /** Starts with a number. */
    record Start(long value) implements InitialUpdate<Sum>, Serializable {
        @Override
        public Sum create(String stream, Revision revision) {
            return new Sum(stream, revision, value);
        }
    }

    private StateSynchronizer<Sum> sum() {
        return world.keep(factory.createStateSynchronizer("shared", new JavaSerializer<Add>(),
                new JavaSerializer<Start>(), CONFIG));
    }

    private static void increment(StateSynchronizer<Sum> sum) {
        sum.updateState((state, updates) -> {
            updates.add(new Add(1));
        });
    }

    private RevisionedStreamClient<String> log() {
        return world.keep(factory.createRevisionedStreamClient("shared", new UTF8StringSerializer(), CONFIG));
    }

    @Test
    void concurrentUpdatesAreAllCounted() throws Exception {
        List<CompletableFuture<Void>> adding = new ArrayList<>();
        for (int client = 0; client < 3; client++) {
            StateSynchronizer<Sum> sum = sum();
            adding.add(world.start(() -> {
                sum.initialize(new Start(0));
                for (int step = 0; step < 50; step++) {
                    increment(sum);
                }
                return null;
            }));
        }
        for (var each : adding) {
            World.inTime(each);
        }
        StateSynchronizer<Sum> sum = sum();
        sum.fetchUpdates();
        assertEquals(150, sum.getState().value());
    }

    @Test
    void compactionKeepsTheState() {
        StateSynchronizer<Sum> first = sum();
        first.initialize(new Start(100));
        StateSynchronizer<Sum> second = sum();
        for (int round = 1; round <= 3; round++) {
            for (int step = 0; step < 10; step++) {
                increment(first);
            }
            first.compact(state -> new Start(state.value()));
            second.fetchUpdates();
            assertEquals(100 + 10 * round, second.getState().value());
        }
        StateSynchronizer<Sum> late = sum();
        late.fetchUpdates();
        assertEquals(130, late.getState().value());
    }

    @Test
    void conditionalWriteNeedsTheLatestRevision() throws Exception {
        RevisionedStreamClient<String> log = log();
        Revision start = log.fetchLatestRevision();
        Revision first = log.writeConditionally(start, "first");
        assertNotNull(first);
        assertNull(log().writeConditionally(start, "refused"));
        assertNotNull(log.writeConditionally(first, "second"));
        log.writeUnconditionally("third");
        List<String> found = new ArrayList<>();
        log.readFrom(start).forEachRemaining(entry -> found.add(entry.getValue()));
        assertEquals(List.of("first", "second", "third"), found);
    }

    @Test
    void truncatedRevisionsAreRefused() throws Exception {
        RevisionedStreamClient<String> log = log();
        Revision start = log.fetchOldestRevision();
        Revision first = log.writeConditionally(start, "first");
        log.writeConditionally(first, "second");
        log.truncateToRevision(first);
        assertEquals(first, log.fetchOldestRevision());
        assertThrows(TruncatedDataException.class, () -> log.readFrom(start).hasNext());
        Map.Entry<Revision, String> entry = log.readFrom(first).next();
        assertEquals("second", entry.getValue());
    }

    @Test
    void markIsSetOnlyFromTheExpectedOne() {
        RevisionedStreamClient<String> log = log();
        assertNull(log.getMark());
        Revision first = log.writeConditionally(log.fetchLatestRevision(), "first");
        assertTrue(log.compareAndSetMark(null, first));
        assertFalse(log.compareAndSetMark(null, first));
        assertEquals(first, log().getMark());
        Revision second = log.writeConditionally(first, "second");
        assertTrue(log.compareAndSetMark(first, second));
        assertTrue(log.compareAndSetMark(second, null));
        assertNull(log.getMark());
    }
}
