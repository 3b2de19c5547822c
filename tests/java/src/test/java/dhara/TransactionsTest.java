package dhara;

import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.Transaction;
import io.pravega.client.stream.TransactionalEventStreamWriter;
import io.pravega.client.stream.TxnFailedException;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Transactions: all of it or nothing, over scalings and leases. */
class TransactionsTest {
    @RegisterExtension
    final World world = new World();

    private TransactionalEventStreamWriter<String> writer(Stream stream, long leaseMillis) {
        EventWriterConfig config = EventWriterConfig.builder().transactionTimeoutTime(leaseMillis).build();
        return world.keep(world.events.createTransactionalEventWriter("writer", stream.getStreamName(),
                new UTF8StringSerializer(), config));
    }

    private static void write(Transaction<String> transaction, String key, int from, int to) throws TxnFailedException {
        for (int number = from; number < to; number++) {
            transaction.writeEvent(key, key + ":" + number);
        }
    }

    private static void reaches(Transaction<String> transaction, Transaction.Status status) throws Exception {
        long deadline = System.nanoTime() + World.STUCK_SECONDS * 1_000_000_000L;
        while (transaction.checkStatus() != status) {
            assertTrue(System.nanoTime() < deadline, () -> "still " + transaction.checkStatus());
            Thread.sleep(20); // between two questions
        }
    }

    @Test
    void committedTransactionsAreReadInCommitOrder() throws Exception {
        Stream stream = world.stream("committed", 2);
        var writer = writer(stream, 30_000);
        for (int start = 0; start < 100; start += 20) {
            Transaction<String> transaction = writer.beginTxn();
            assertEquals(Transaction.Status.OPEN, transaction.checkStatus());
            write(transaction, "key", start, start + 20);
            transaction.flush();
            transaction.commit();
        }
        List<String> events = Ledger.read(world.reader(world.group("group", stream), "reader"), 100);
        assertEquals(Ledger.numbers(0, 100), Ledger.byKey(events).get("key"));
    }

    @Test
    void abortedTransactionLeavesNothing() throws Exception {
        Stream stream = world.stream("aborted", 2);
        var writer = writer(stream, 30_000);
        Transaction<String> aborted = writer.beginTxn();
        write(aborted, "aborted", 0, 20);
        aborted.abort();
        reaches(aborted, Transaction.Status.ABORTED);
        assertThrows(TxnFailedException.class, () -> aborted.writeEvent("key", "late"));
        Transaction<String> committed = writer.beginTxn();
        write(committed, "committed", 0, 20);
        committed.commit();
        reaches(committed, Transaction.Status.COMMITTED);
        assertTrue(world.streams.sealStream(world.scope, stream.getStreamName()));
        List<String> events = Ledger.drain(world.reader(world.group("group", stream), "reader"));
        assertEquals(Ledger.numbers(0, 20), Ledger.byKey(events).get("committed"));
        assertEquals(20, events.size());
    }

    @Test
    void transactionIsCommittedByAnotherProcessThatKnowsItsId() throws Exception {
        Stream stream = world.stream("resumed", 1);
        Transaction<String> transaction = writer(stream, 30_000).beginTxn();
        write(transaction, "key", 0, 10);
        transaction.flush();
        writer(stream, 30_000).getTxn(transaction.getTxnId()).commit();
        reaches(transaction, Transaction.Status.COMMITTED);
        List<String> events = Ledger.read(world.reader(world.group("group", stream), "reader"), 10);
        assertEquals(Ledger.numbers(0, 10), Ledger.byKey(events).get("key"));
    }

    @Test
    void pingedTransactionOutlivesItsLease() throws Exception {
        Stream stream = world.stream("pinged", 1);
        Transaction<String> transaction = writer(stream, 10_000).beginTxn(); // the client pings it
        write(transaction, "key", 0, 10);
        Thread.sleep(14_000); // longer than the lease, which is the least that is allowed
        assertEquals(Transaction.Status.OPEN, transaction.checkStatus());
        transaction.commit();
        List<String> events = Ledger.read(world.reader(world.group("group", stream), "reader"), 10);
        assertEquals(Ledger.numbers(0, 10), Ledger.byKey(events).get("key"));
    }

    @Test
    void transactionOfAnEarlierEpochIsCommittedAfterScalings() throws Exception {
        Stream stream = world.stream("rolled", 1);
        Transaction<String> transaction = writer(stream, 30_000).beginTxn();
        write(transaction, "transacted", 0, 50);
        world.split(stream, 0);
        write(transaction, "transacted", 50, 100);
        world.split(stream, 1);
        transaction.commit();
        reaches(transaction, Transaction.Status.COMMITTED);
        assertEquals(3, world.current(stream).size(), "the scaling is not undone");
        Ledger.write(world.writer(stream), 0, 100, 10);
        var numbers = Ledger.byKey(Ledger.read(world.reader(world.group("group", stream), "reader"), 200));
        assertEquals(Ledger.numbers(0, 100), numbers.get("transacted"));
        assertEquals(Ledger.numbers(0, 10), numbers.get("key-9"));
    }
}
