"""What every test starts from: the store under test and a scope of its own.

The store is named by DHARA_CONTROLLER, for example tcp://127.0.0.1:9090. Nothing here starts or stops it.
"""
import os
import uuid

import pravega_client
import pytest

from controller import Controller


@pytest.fixture(scope="session")
def uri():
    return os.environ["DHARA_CONTROLLER"]


@pytest.fixture(scope="session")
def manager(uri):
    return pravega_client.StreamManager(uri)


@pytest.fixture(scope="session")
def controller(uri):
    with Controller(uri) as controller:
        yield controller


@pytest.fixture
def scope(manager):
    """A new scope; what the test leaves in it is sealed and deleted afterwards, and the scope must then be empty."""
    name = "py" + uuid.uuid4().hex[:12]
    assert manager.create_scope(name)
    yield name
    for stream in manager.list_stream(name):
        if not stream.startswith("_"):  # the streams of the store itself go with their owners
            manager.seal_stream(name, stream)
            manager.delete_stream(name, stream)
    assert manager.delete_scope(name)
