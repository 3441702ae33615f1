"""The HTTP API over a fake executor: a server for each test file, or for each test."""

from collections.abc import Iterator

import pytest

from tests.support.live_server import CONFIG, LiveServer


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with LiveServer(CONFIG) as live:
        yield live


@pytest.fixture
def fresh_server() -> Iterator[LiveServer]:
    with LiveServer(CONFIG) as live:
        yield live
