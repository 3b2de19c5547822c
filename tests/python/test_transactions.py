"""Transactions: all of it or nothing, over scalings too."""
import threading
import time

import pravega_client
import pytest

from reading import by_key, read

WRITER = 7


@pytest.fixture
def stream(manager, scope):
    manager.create_stream(scope, "transacted", 2)
    return "transacted"


def wait_until_closed(transaction):
    deadline, pause = time.monotonic() + 60, threading.Event()
    while transaction.is_open():
        assert time.monotonic() < deadline
        pause.wait(0.02)


def test_committed_events_are_read_in_order(manager, scope, stream):
    writer = manager.create_transaction_writer(scope, stream, WRITER)
    for start in range(0, 100, 20):
        transaction = writer.begin_txn()
        assert transaction.is_open()
        for number in range(start, start + 20):
            transaction.write_event(f"key:{number}", "key")
        transaction.commit()
        wait_until_closed(transaction)
    group = manager.create_reader_group("group", scope, stream)
    assert by_key(read(group, "reader", 100)) == {"key": list(range(100))}


def test_aborted_events_are_never_read(manager, scope, stream):
    writer = manager.create_transaction_writer(scope, stream, WRITER)
    aborted = writer.begin_txn()
    aborted.write_event("aborted:0", "key")
    aborted.abort()
    wait_until_closed(aborted)
    committed = writer.begin_txn()
    committed.write_event_bytes(b"committed:0", "key")
    committed.commit()
    wait_until_closed(committed)
    group = manager.create_reader_group("group", scope, stream)
    assert by_key(read(group, "reader", 1)) == {"committed": [0]}


def test_closed_transaction_refuses_everything(manager, scope, stream):
    writer = manager.create_transaction_writer(scope, stream, WRITER)
    for close in ("commit", "abort"):
        transaction = writer.begin_txn()
        getattr(transaction, close)()
        for attempt in (lambda: transaction.write_event("late", "key"), transaction.commit, transaction.abort):
            with pytest.raises(pravega_client.TxnFailedException):
                attempt()


def test_open_transaction_is_found_by_its_id(manager, scope, stream):
    writer = manager.create_transaction_writer(scope, stream, WRITER)
    transaction = writer.begin_txn()
    found = writer.get_txn(transaction.get_txn_id())
    assert found.get_txn_id() == transaction.get_txn_id()
    assert found.is_open()
    transaction.abort()
    wait_until_closed(found)


def test_events_of_an_open_transaction_are_not_visible(manager, scope, stream):
    writer = manager.create_transaction_writer(scope, stream, WRITER)
    transaction = writer.begin_txn()
    transaction.write_event("inside:0", "key")
    manager.create_writer(scope, stream).write_event("outside:0", "key")
    group = manager.create_reader_group("group", scope, stream)
    assert by_key(read(group, "first", 1)) == {"outside": [0]}
    transaction.commit()
    assert by_key(read(group, "second", 1)) == {"inside": [0]}


def test_transaction_of_an_earlier_epoch_is_committed_after_a_scaling(manager, controller, scope, stream):
    writer = manager.create_transaction_writer(scope, stream, WRITER)
    transaction = writer.begin_txn()
    for number in range(10):
        transaction.write_event(f"key:{number}", "key")
    controller.split(scope, stream, 0)
    for number in range(10, 20):
        transaction.write_event(f"key:{number}", "key")
    transaction.commit()
    wait_until_closed(transaction)
    group = manager.create_reader_group("group", scope, stream)
    assert by_key(read(group, "reader", 20)) == {"key": list(range(20))}


def test_empty_transaction_is_committed(manager, scope, stream):
    writer = manager.create_transaction_writer(scope, stream, WRITER)  # its pinger must outlive the transaction
    transaction = writer.begin_txn()
    transaction.commit()
    wait_until_closed(transaction)
