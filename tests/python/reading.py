"""Readers of the wheel, as coroutines that collect what they are given."""
import asyncio

STUCK_SECONDS = 40  # longer than the wheel's own 30 s for a read without an answer


async def next_events(reader):
    """The events of the next slice, which may be none."""
    piece = await asyncio.wait_for(reader.get_segment_slice_async(), STUCK_SECONDS)
    if piece is None:
        return []
    events = [event.data() for event in piece]
    reader.release_segment(piece)
    return events


async def collect(reader, events, enough):
    """Reads into `events` until `enough()` holds."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    while not enough():
        events.extend(await next_events(reader))
        assert loop.time() - started < STUCK_SECONDS * 5, f"only {len(events)} events came"


async def wait_for(condition):
    """Waits until the reading coroutines have made `condition` true."""
    deadline = asyncio.get_running_loop().time() + STUCK_SECONDS
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.02)


async def drain(reader, events, segments):
    """Reads a sealed stream of so many segments to its end: more slices in a row have nothing left than segments that
    may end one after the other while bytes of another are on their way."""
    empty = 0
    while empty <= segments:
        found = await next_events(reader)
        events.extend(found)
        empty = 0 if found else empty + 1


def read(group, reader_id, count):
    """The next `count` events (or a few more) of a group's only reader, which goes offline afterwards."""
    events, reader = [], group.create_reader(reader_id)
    asyncio.run(collect(reader, events, lambda: len(events) >= count))
    reader.reader_offline()
    return events


def by_key(events):
    """Events "key:number" as {key: [number, …]}, in the order read."""
    numbers = {}
    for event in events:
        key, number = event.decode().rsplit(":", 1)
        numbers.setdefault(key, []).append(int(number))
    return numbers


def assert_once_and_in_order(events, keys, total):
    """Each of the writer's `total` events is there once, and the events of a key are in the order written."""
    numbers = by_key(events)
    for index in range(keys):
        expected = list(range(len(range(index, total, keys))))
        assert numbers.pop(f"key-{index}", []) == expected, f"key-{index}"
    assert not numbers
    assert len(events) == total
