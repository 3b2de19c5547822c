package dhara;

import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.EventStreamWriter;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Numbered events "key:number": writing them, reading them, and checking that each came once and in order. */
final class Ledger {
    private Ledger() {
    }

    /** Writes the events {@code from..to} of {@code keys} keys and waits until they are durable. */
    static void write(EventStreamWriter<String> writer, int from, int to, int keys) {
        for (int number = from; number < to; number++) {
            String key = "key-" + number % keys;
            writer.writeEvent(key, key + ":" + number / keys);
        }
        writer.flush();
    }

    /** Reads {@code count} events. */
    static List<String> read(EventStreamReader<String> reader, int count) {
        List<String> events = new ArrayList<>();
        long deadline = System.nanoTime() + World.STUCK_SECONDS * 1_000_000_000L;
        while (events.size() < count) {
            String event = reader.readNextEvent(2000).getEvent();
            if (event != null) {
                events.add(event);
            }
            assertTrue(System.nanoTime() < deadline, () -> "only " + events.size() + " of " + count + " events came");
        }
        return events;
    }

    static List<String> drain(EventStreamReader<String> reader) {
        return drain(reader, World.STUCK_SECONDS);
    }

    static List<String> drain(EventStreamReader<String> reader, long seconds) {
        List<String> events = new ArrayList<>();
        drain(reader, seconds, events);
        return events;
    }

    /** Reads a bounded or sealed stream to its end, to a list that others may fill as well; returns its own number. */
    static int drain(EventStreamReader<String> reader, long seconds, List<String> events) {
        int count = 0;
        long deadline = System.nanoTime() + seconds * 1_000_000_000L;
        while (true) {
            EventRead<String> read = reader.readNextEvent(2000);
            if (read.getEvent() != null) {
                events.add(read.getEvent());
                count++;
            } else if (read.isReadCompleted()) {
                return count;
            }
            assertTrue(System.nanoTime() < deadline, () -> "no end after " + events.size() + " events");
        }
    }

    /** The numbers of each key, in the order read. */
    static Map<String, List<Integer>> byKey(List<String> events) {
        Map<String, List<Integer>> numbers = new HashMap<>();
        for (String event : events) {
            int colon = event.lastIndexOf(':');
            Integer number = Integer.valueOf(event.substring(colon + 1));
            numbers.computeIfAbsent(event.substring(0, colon), key -> new ArrayList<>()).add(number);
        }
        return numbers;
    }

    static List<Integer> numbers(int from, int to) {
        return IntStream.range(from, to).boxed().toList();
    }

    /** Each of {@code total} events is there once, and the events of a key are in the order written. */
    static void assertOnceAndInOrder(List<String> events, int keys, int total) {
        Map<String, List<Integer>> numbers = byKey(events);
        for (int key = 0; key < Math.min(keys, total); key++) {
            assertEquals(numbers(0, (total - key + keys - 1) / keys), numbers.get("key-" + key), "key-" + key);
        }
        assertEquals(total, events.size());
    }
}
