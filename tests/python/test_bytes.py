"""Byte streams."""
import pytest


@pytest.fixture
def stream(manager, scope):
    manager.create_stream(scope, "bytes", 1)
    return manager.create_byte_stream(scope, "bytes")


def read_exactly(stream, length):
    """Reads `length` bytes, in as many parts as the stream gives."""
    found = bytearray()
    while len(found) < length:
        part = bytearray(length - len(found))
        found += part[: stream.readinto(part)]
    return bytes(found)


def test_bytes_are_read_back(stream):
    assert stream.write(b"hello world") == 11
    stream.flush()
    assert read_exactly(stream, 11) == b"hello world"
    assert stream.tell() == 11


def test_seeking_moves_from_start_position_and_end(stream):
    assert stream.seekable()
    stream.write(b"0123456789")
    stream.flush()
    assert stream.seek(4, 0) == 4 and read_exactly(stream, 2) == b"45"
    assert stream.seek(-3, 1) == 3 and read_exactly(stream, 1) == b"3"
    assert stream.seek(-2, 2) == 8 and read_exactly(stream, 2) == b"89"


def test_offsets_follow_writes_and_truncation(stream):
    stream.write(b"0123456789")
    stream.flush()
    assert (stream.current_head_offset(), stream.current_tail_offset()) == (0, 10)
    stream.truncate(6)
    assert (stream.current_head_offset(), stream.current_tail_offset()) == (6, 10)
    stream.seek(6, 0)
    assert read_exactly(stream, 4) == b"6789"


def test_many_megabytes_are_equal(stream):
    pattern = bytes(range(251)) * 4000  # 251 is prime, so no power of two hides a shift
    for _ in range(12):
        written = 0
        while written < len(pattern):
            written += stream.write(pattern[written:])
    stream.flush()
    stream.seek(0, 0)
    for part in range(12):
        assert read_exactly(stream, len(pattern)) == pattern, f"part {part}"
    assert stream.current_tail_offset() == 12 * len(pattern)
