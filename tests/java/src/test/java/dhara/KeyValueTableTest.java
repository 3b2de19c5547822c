package dhara;

import io.pravega.client.KeyValueTableFactory;
import io.pravega.client.admin.KeyValueTableManager;
import io.pravega.client.tables.BadKeyVersionException;
import io.pravega.client.tables.ConditionalTableUpdateException;
import io.pravega.client.tables.Insert;
import io.pravega.client.tables.IteratorItem;
import io.pravega.client.tables.KeyValueTable;
import io.pravega.client.tables.KeyValueTableClientConfiguration;
import io.pravega.client.tables.KeyValueTableConfiguration;
import io.pravega.client.tables.KeyValueTableIterator;
import io.pravega.client.tables.Put;
import io.pravega.client.tables.Remove;
import io.pravega.client.tables.TableEntry;
import io.pravega.client.tables.TableKey;
import io.pravega.client.tables.TableModification;
import io.pravega.client.tables.Version;
import io.pravega.common.util.AsyncIterator;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Key-value tables. */
class KeyValueTableTest {
    private static final KeyValueTableConfiguration SHAPE =
            KeyValueTableConfiguration.builder().partitionCount(2).primaryKeyLength(4).secondaryKeyLength(4).build();

    @RegisterExtension
    final World world = new World();
    private KeyValueTableManager manager;
    private KeyValueTable table;

    @BeforeEach
    void open() {
        manager = world.keep(KeyValueTableManager.create(world.config));
        assertTrue(manager.createKeyValueTable(world.scope, "table", SHAPE));
        table = openTable();
    }

    private KeyValueTable openTable() {
        var factory = world.keep(KeyValueTableFactory.withScope(world.scope, world.config));
        return world.keep(factory.forKeyValueTable("table", KeyValueTableClientConfiguration.builder().build()));
    }

    private static ByteBuffer bytes(String text) {
        return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(ByteBuffer bytes) {
        return StandardCharsets.UTF_8.decode(bytes.duplicate()).toString();
    }

    private static TableKey key(int primary, int secondary) {
        return new TableKey(bytes(String.format("p%03d", primary)), bytes(String.format("s%03d", secondary)));
    }

    private String get(TableKey key) throws Exception {
        TableEntry entry = World.inTime(table.get(key));
        return entry == null ? null : text(entry.getValue());
    }

    private void refused(TableModification modification) {
        var failure = assertThrows(ExecutionException.class, () -> World.inTime(table.update(modification)));
        assertInstanceOf(ConditionalTableUpdateException.class, failure.getCause());
    }

    @Test
    void tableIsCreatedOnceListedAndDeletedOnce() {
        assertFalse(manager.createKeyValueTable(world.scope, "table", SHAPE));
        List<String> names = new ArrayList<>();
        manager.listKeyValueTables(world.scope).forEachRemaining(info -> names.add(info.getKeyValueTableName()));
        assertEquals(List.of("table"), names);
        assertTrue(manager.deleteKeyValueTable(world.scope, "table"));
        assertFalse(manager.deleteKeyValueTable(world.scope, "table"));
    }

    @Test
    void conditionsAreKept() throws Exception {
        TableKey key = key(1, 1);
        assertFalse(World.inTime(table.exists(key)));
        Version first = World.inTime(table.update(new Insert(key, bytes("one"))));
        refused(new Insert(key, bytes("again")));
        Version second = World.inTime(table.update(new Put(key, bytes("two"), first)));
        refused(new Put(key, bytes("stale"), first));
        refused(new Remove(key, first));
        assertEquals("two", get(key));
        World.inTime(table.update(new Put(key, bytes("any"))));
        refused(new Remove(key, second));
        World.inTime(table.update(new Remove(key)));
        assertNull(get(key));
        World.inTime(table.update(new Remove(key)));
    }

    @Test
    void updatesOfOnePrimaryKeyAreDoneTogetherOrNotAtAll() throws Exception {
        List<TableModification> batch = new ArrayList<>();
        for (int secondary = 0; secondary < 50; secondary++) {
            batch.add(new Insert(key(7, secondary), bytes("value-" + secondary)));
        }
        List<Version> versions = World.inTime(table.update(batch));
        assertEquals(50, versions.size());
        List<TableModification> mixed = List.of(new Put(key(7, 0), bytes("changed"), versions.get(0)),
                new Put(key(7, 1), bytes("changed")), new Insert(key(7, 2), bytes("there already")));
        assertThrows(ExecutionException.class, () -> World.inTime(table.update(mixed)));
        assertEquals("value-0", get(key(7, 0)));
        assertEquals("value-1", get(key(7, 1)));
        World.inTime(table.update(mixed.subList(0, 2)));
        assertEquals("changed", get(key(7, 0)));
        assertEquals("changed", get(key(7, 1)));
    }

    private List<String> values(KeyValueTableIterator iterator) throws Exception {
        List<String> values = new ArrayList<>();
        AsyncIterator<IteratorItem<TableEntry>> pages = iterator.entries();
        while (true) {
            IteratorItem<TableEntry> page = World.inTime(pages.getNext());
            if (page == null) {
                return values;
            }
            page.getItems().forEach(entry -> values.add(text(entry.getValue())));
        }
    }

    @Test
    void iterationIsInOrderWithinItsRange() throws Exception {
        for (int primary = 0; primary < 5; primary++) {
            List<TableModification> batch = new ArrayList<>();
            for (int secondary = 0; secondary < 20; secondary++) {
                batch.add(new Put(key(primary, secondary), bytes(String.format("%03d/%03d", primary, secondary))));
            }
            World.inTime(table.update(batch));
        }
        List<String> expected = new ArrayList<>();
        for (int secondary = 0; secondary < 20; secondary++) {
            expected.add(String.format("003/%03d", secondary));
        }
        assertEquals(expected, values(table.iterator().maxIterationSize(7).forPrimaryKey(bytes("p003"))));
        assertEquals(expected.subList(5, 11), values(table.iterator().maxIterationSize(4)
                .forPrimaryKey(bytes("p003"), bytes("s005"), bytes("s010"))));
        List<String> all = values(table.iterator().maxIterationSize(9).all());
        assertEquals(100, all.size());
        assertEquals(100, all.stream().distinct().count());
        assertEquals(40, values(table.iterator().maxIterationSize(9).forRange(bytes("p001"), bytes("p002"))).size());
    }

    @Test
    void concurrentConditionalIncrementsAreAllCounted() throws Exception {
        TableKey key = key(1, 1);
        World.inTime(table.update(new Insert(key, bytes("0"))));
        List<CompletableFuture<Void>> adding = new ArrayList<>();
        for (int client = 0; client < 4; client++) {
            KeyValueTable own = openTable();
            adding.add(world.start(() -> {
                for (int done = 0; done < 25; ) {
                    TableEntry entry = World.inTime(own.get(key));
                    String next = String.valueOf(Integer.parseInt(text(entry.getValue())) + 1);
                    try {
                        World.inTime(own.update(new Put(key, bytes(next), entry.getVersion())));
                        done++;
                    } catch (ExecutionException e) {
                        assertInstanceOf(BadKeyVersionException.class, e.getCause());
                    }
                }
                return null;
            }));
        }
        for (var each : adding) {
            World.inTime(each);
        }
        assertEquals("100", get(key));
    }
}
