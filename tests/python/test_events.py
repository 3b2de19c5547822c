"""Events: writing, and reading through groups."""
import asyncio

import pravega_client
import pytest

from reading import assert_once_and_in_order, by_key, collect, drain, read


def write(manager, scope, stream, events, in_flight=100):
    """Writes (event, key) pairs and returns once they are acknowledged."""
    writer = manager.create_writer(scope, stream, in_flight)
    for event, key in events:
        writer.write_event(event, key)
    writer.flush()


def numbered(total, keys):
    return [(f"key-{number % keys}:{number // keys}", f"key-{number % keys}") for number in range(total)]


def test_events_of_a_key_keep_their_order(manager, scope):
    manager.create_stream(scope, "ordered", 4)
    write(manager, scope, "ordered", numbered(1000, 10))
    events = read(manager.create_reader_group("group", scope, "ordered"), "reader", 1000)
    assert_once_and_in_order(events, keys=10, total=1000)


def test_events_without_a_key_all_arrive(manager, scope):
    manager.create_stream(scope, "keyless", 3)
    write(manager, scope, "keyless", [(f"event-{number}", None) for number in range(300)])
    events = read(manager.create_reader_group("group", scope, "keyless"), "reader", 300)
    assert sorted(events) == sorted(f"event-{number}".encode() for number in range(300))


def test_awaited_write_is_there(manager, scope):
    manager.create_stream(scope, "awaited", 1)
    writer = manager.create_writer(scope, "awaited")

    async def go():
        for number in range(50):
            await writer.write_event_async(f"key:{number}", "key")

    asyncio.run(go())
    events = read(manager.create_reader_group("group", scope, "awaited"), "reader", 50)
    assert by_key(events) == {"key": list(range(50))}


@pytest.mark.parametrize("key", ["", "a", "ключ", "鍵", "a" * 1000], ids=["empty", "short", "cyrillic", "han", "long"])
def test_any_text_is_a_key(manager, scope, key):
    manager.create_stream(scope, "keys", 4)
    write(manager, scope, "keys", [(f"key:{number}", key) for number in range(20)])
    events = read(manager.create_reader_group("group", scope, "keys"), "reader", 20)
    assert by_key(events) == {"key": list(range(20))}


@pytest.mark.parametrize("size", [1, 65_536, 1_048_576, 8_388_600, 12_000_000, 16_000_000])
def test_event_of_any_size_is_read_back(manager, scope, size):
    manager.create_stream(scope, "sizes", 1)
    event = bytes(range(256)) * (size // 256) + b"e" * (size % 256)
    writer = manager.create_writer(scope, "sizes")
    writer.write_event_bytes(b"before", "key")
    writer.write_event_bytes(event, "key")
    writer.write_event_bytes(b"after", "key")
    events = read(manager.create_reader_group("group", scope, "sizes"), "reader", 3)
    assert [len(read_back) for read_back in events] == [6, size, 5]
    assert events[1] == event


def test_two_groups_read_the_same_events(manager, scope):
    manager.create_stream(scope, "shared", 2)
    write(manager, scope, "shared", numbered(200, 4))
    for group in ("first", "second"):
        events = read(manager.create_reader_group(group, scope, "shared"), "reader", 200)
        assert_once_and_in_order(events, keys=4, total=200)


def test_group_from_the_tail_sees_only_what_comes_later(manager, scope):
    manager.create_stream(scope, "tail", 2)
    write(manager, scope, "tail", [(f"old:{number}", f"{number}") for number in range(50)])
    group = manager.create_reader_group("group", scope, "tail", True)
    write(manager, scope, "tail", [(f"new:{number}", f"{number}") for number in range(50)])
    assert sorted(by_key(read(group, "reader", 50))["new"]) == list(range(50))


def test_group_over_several_streams_reads_them_all(manager, scope):
    for stream in ("left", "right"):
        manager.create_stream(scope, stream, 2)
        write(manager, scope, stream, [(f"{stream}:{number}", "key") for number in range(100)])
    config = pravega_client.StreamReaderGroupConfig(False, scope, "left", "right")
    group = manager.create_reader_group_with_config("group", scope, config)
    assert by_key(read(group, "reader", 200)) == {"left": list(range(100)), "right": list(range(100))}


def test_next_reader_goes_on_where_the_last_one_stopped(manager, scope):
    manager.create_stream(scope, "handover", 1)
    group = manager.create_reader_group("group", scope, "handover")
    for start in (0, 100):
        write(manager, scope, "handover", [(f"key:{number}", "key") for number in range(start, start + 100)])
        assert by_key(read(group, f"reader-{start}", 100)) == {"key": list(range(start, start + 100))}


def test_segments_of_a_lost_reader_pass_to_another(manager, scope):
    manager.create_stream(scope, "lost", 2)
    group = manager.create_reader_group("group", scope, "lost")
    lost = group.create_reader("lost")
    write(manager, scope, "lost", numbered(100, 8))
    group.reader_offline("lost")
    events = read(group, "heir", 100)
    assert_once_and_in_order(events, keys=8, total=100)
    del lost


def test_sealed_stream_is_read_to_its_end(manager, scope):
    manager.create_stream(scope, "sealed", 3)
    write(manager, scope, "sealed", numbered(300, 6))
    assert manager.seal_stream(scope, "sealed")
    events, reader = [], manager.create_reader_group("group", scope, "sealed").create_reader("reader")
    asyncio.run(drain(reader, events, segments=3))
    reader.reader_offline()
    assert_once_and_in_order(events, keys=6, total=300)


def test_waiting_reader_is_woken_by_a_write(manager, scope):
    manager.create_stream(scope, "waiting", 1)
    events, reader = [], manager.create_reader_group("group", scope, "waiting").create_reader("reader")
    writer = manager.create_writer(scope, "waiting")

    async def go():
        waiting = asyncio.ensure_future(collect(reader, events, lambda: b"late" in events))
        await asyncio.sleep(0)  # the read is on its way before the write
        await writer.write_event_async("late")
        await waiting

    asyncio.run(go())
    reader.reader_offline()
    assert events == [b"late"]
