"""Splits and merges under a writer and a group of two readers.

EVENTS sets how many events the large test writes at least (20000).
"""
import asyncio
import os
import subprocess
import sys

from reading import assert_once_and_in_order, collect, drain, wait_for

KEYS = 50
PHASES = 3


class Share(list):
    """What one reader found; `together` has what all found in the order of arrival, since keys move between readers."""

    def __init__(self, together):
        super().__init__()
        self._together = together

    def extend(self, events):
        super().extend(events)
        self._together.extend(events)


class Writer:
    """The process of writer.py."""

    def __init__(self, uri, scope, stream, quota):
        self._arguments = [uri, scope, stream, str(KEYS), str(quota), str(PHASES)]

    async def __aenter__(self):
        script = os.path.join(os.path.dirname(__file__), "writer.py")
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, script, *self._arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    async def __aexit__(self, *_):
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def _line(self):
        line = await asyncio.wait_for(self._process.stdout.readline(), 300)
        return line.decode().split()

    async def quota(self):
        """Waits until the phase has its events; the writer goes on meanwhile."""
        assert await self._line() == ["quota"]

    def next_phase(self):
        self._process.stdin.write(b"\n")

    async def done(self):
        """Waits until everything is acknowledged and returns the number of events."""
        word, total = await self._line()
        assert word == "done"
        await self._process.wait()
        return int(total)


async def write_read_and_scale(uri, manager, controller, scope, stream, quota):
    """Two readers follow a writer over a split and a merge; returns what they read in order, and the number written."""
    group = manager.create_reader_group("group", scope, stream)
    readers = [group.create_reader(f"reader-{number}") for number in (1, 2)]
    together = []
    found = Share(together), Share(together)
    written = None

    def all_read():
        return written is not None and sum(map(len, found)) >= written

    async with Writer(uri, scope, stream, quota) as writer:
        reading = [asyncio.ensure_future(collect(*pair, all_read)) for pair in zip(readers, found)]
        await writer.quota()
        # A reader gets segments of another's only when the wheel rebalances, every ten seconds.
        await wait_for(lambda: all(found))
        for action in (controller.split, controller.merge):
            writer.next_phase()
            await asyncio.to_thread(action, scope, stream, 1)
            await writer.quota()
        writer.next_phase()
        written = await writer.done()
    # Sealed, so that every waiting reader comes back and nothing can follow.
    assert await asyncio.to_thread(manager.seal_stream, scope, stream)
    await asyncio.gather(*reading)
    for reader, events in zip(readers, found):
        await drain(reader, events, segments=6)
        reader.reader_offline()
    return together, written


def test_each_event_once_and_in_order_over_split_and_merge(uri, manager, controller, scope):
    quota = int(os.environ.get("EVENTS", "20000")) // PHASES + 1
    manager.create_stream(scope, "large", 4)
    events, written = asyncio.run(write_read_and_scale(uri, manager, controller, scope, "large", quota))
    assert written >= quota * PHASES
    assert len(controller.segments(scope, "large")) == 0  # sealed
    assert_once_and_in_order(events, KEYS, written)


def test_group_created_after_scaling_reads_the_old_segments_first(manager, controller, scope):
    manager.create_stream(scope, "history", 2)
    writer = manager.create_writer(scope, "history", 100)
    number = 0
    for action in (controller.split, controller.merge, controller.split, None):
        for _ in range(200):
            key = f"key-{number % KEYS}"
            writer.write_event(f"{key}:{number // KEYS}", key)
            number += 1
        writer.flush()
        if action:
            action(scope, "history", 0)
    assert manager.seal_stream(scope, "history")
    events, reader = [], manager.create_reader_group("group", scope, "history").create_reader("reader")
    asyncio.run(collect(reader, events, lambda: len(events) >= number))
    asyncio.run(drain(reader, events, segments=4))
    reader.reader_offline()
    assert_once_and_in_order(events, KEYS, number)


def test_idle_reader_crosses_empty_segments(manager, controller, scope):
    manager.create_stream(scope, "empty", 1)
    events, reader = [], manager.create_reader_group("group", scope, "empty").create_reader("reader")
    controller.split(scope, "empty", 0)
    controller.merge(scope, "empty", 0)
    manager.create_writer(scope, "empty").write_event("here", "key")
    asyncio.run(collect(reader, events, lambda: events))
    reader.reader_offline()
    assert events == [b"here"]
