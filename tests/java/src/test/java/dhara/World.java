package dhara;

import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.admin.StreamManager;
import io.pravega.client.control.impl.ControllerImpl;
import io.pravega.client.control.impl.ControllerImplConfig;
import io.pravega.client.segment.impl.Segment;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroup;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.ScalingPolicy;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamConfiguration;
import io.pravega.client.stream.impl.ByteArraySerializer;
import io.pravega.client.stream.impl.StreamSegments;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.net.URI;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

import static org.junit.jupiter.api.Assertions.assertTrue;

/**
 * What every test starts from: clients of the store that DHARA_CONTROLLER names, and a scope of its own. What is opened
 * through it is closed after the test, the last one first. It never starts or stops the store.
 */
final class World implements BeforeEachCallback, AfterEachCallback {
    /** Longer than any single answer of a healthy store takes. */
    static final long STUCK_SECONDS = 60;

    /** Bounds of segments that are looked at or scaled here are multiples of 1/GRID. */
    private static final int GRID = 64;

    /** A segment and its part of the key space. */
    record Owned(Segment segment, double low, double high) {
    }

    final String scope = "java" + UUID.randomUUID().toString().substring(0, 13).replace("-", "");
    ClientConfig config;
    StreamManager streams;
    ReaderGroupManager groups;
    EventStreamClientFactory events;
    ScheduledExecutorService executor;
    private ControllerImpl controller;
    private final Deque<AutoCloseable> open = new ArrayDeque<>();

    @Override
    public void beforeEach(ExtensionContext context) {
        config = ClientConfig.builder().controllerURI(URI.create(System.getenv("DHARA_CONTROLLER"))).build();
        executor = Executors.newScheduledThreadPool(2);
        controller = keep(new ControllerImpl(ControllerImplConfig.builder().clientConfig(config).build(), executor));
        streams = keep(StreamManager.create(config));
        assertTrue(streams.createScope(scope));
        groups = keep(ReaderGroupManager.withScope(scope, config));
        events = keep(EventStreamClientFactory.withScope(scope, config));
    }

    @Override
    public void afterEach(ExtensionContext context) throws Exception {
        while (!open.isEmpty()) {
            open.pop().close();
        }
        executor.shutdown();
    }

    /** Has {@code thing} closed after the test. */
    <T extends AutoCloseable> T keep(T thing) {
        open.push(thing);
        return thing;
    }

    Stream stream(String name, int segments) {
        StreamConfiguration fixed = StreamConfiguration.builder().scalingPolicy(ScalingPolicy.fixed(segments)).build();
        assertTrue(streams.createStream(scope, name, fixed));
        return Stream.of(scope, name);
    }

    EventStreamWriter<String> writer(Stream stream) {
        EventWriterConfig plain = EventWriterConfig.builder().build();
        return keep(events.createEventWriter(stream.getStreamName(), new UTF8StringSerializer(), plain));
    }

    EventStreamWriter<byte[]> largeWriter(Stream stream) {
        EventWriterConfig large = EventWriterConfig.builder().enableLargeEvents(true).build();
        return keep(events.createEventWriter(stream.getStreamName(), new ByteArraySerializer(), large));
    }

    /** This client moves on from a sealed segment only at a checkpoint, so groups make one every second. */
    static ReaderGroupConfig.ReaderGroupConfigBuilder quick() {
        return ReaderGroupConfig.builder().automaticCheckpointIntervalMillis(1000).groupRefreshTimeMillis(500);
    }

    ReaderGroup group(String name, Stream... of) {
        ReaderGroupConfig.ReaderGroupConfigBuilder config = quick();
        for (Stream stream : of) {
            config = config.stream(stream);
        }
        return group(name, config.build());
    }

    ReaderGroup group(String name, ReaderGroupConfig config) {
        assertTrue(groups.createReaderGroup(name, config));
        return keep(groups.getReaderGroup(name));
    }

    EventStreamReader<String> reader(ReaderGroup group, String id) {
        ReaderConfig plain = ReaderConfig.builder().build();
        return keep(events.createReader(id, group.getGroupName(), new UTF8StringSerializer(), plain));
    }

    /** Replaces the segment at {@code index}, from the lowest key on, by two halves, and waits for the new epoch. */
    void split(Stream stream, int index) throws Exception {
        Owned whole = current(stream).get(index);
        double middle = (whole.low() + whole.high()) / 2;
        scale(stream, List.of(whole), Map.of(whole.low(), middle, middle, whole.high()));
    }

    /** Joins the segments at {@code index} and {@code index + 1}, and waits for the new epoch. */
    void merge(Stream stream, int index) throws Exception {
        List<Owned> both = current(stream).subList(index, index + 2);
        scale(stream, both, Map.of(both.get(0).low(), both.get(1).high()));
    }

    private void scale(Stream stream, List<Owned> sealed, Map<Double, Double> ranges) throws Exception {
        List<Long> ids = sealed.stream().map(owned -> owned.segment().getSegmentId()).toList();
        assertTrue(inTime(controller.scaleStream(stream, ids, ranges, executor).getFuture()), "scaling succeeds");
    }

    /** The current segments from the lowest key on. The client tells only who owns a key, so a grid of keys is asked. */
    List<Owned> current(Stream stream) throws Exception {
        StreamSegments segments = inTime(controller.getCurrentSegments(scope, stream.getStreamName()));
        List<Owned> owned = new ArrayList<>();
        for (int step = 0; step < GRID; step++) {
            double low = (double) step / GRID;
            double high = (double) (step + 1) / GRID;
            Segment segment = segments.getSegmentForKey((low + high) / 2);
            Owned last = owned.isEmpty() ? null : owned.get(owned.size() - 1);
            if (last != null && last.segment().equals(segment)) {
                owned.set(owned.size() - 1, new Owned(segment, last.low(), high));
            } else {
                owned.add(new Owned(segment, low, high));
            }
        }
        return owned;
    }

    <T> CompletableFuture<T> start(Callable<T> deed) {
        CompletableFuture<T> result = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                result.complete(deed.call());
            } catch (Throwable e) {
                result.completeExceptionally(e);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return result;
    }

    static <T> T inTime(CompletableFuture<T> future) throws Exception {
        return future.get(STUCK_SECONDS, TimeUnit.SECONDS);
    }
}
