"""What the server does before it listens."""

import pytest

from servetwin.app.dashboard import server
from servetwin.app.dashboard.jobs.process_pool import shared_pool
from servetwin.app.dashboard.pages import PAGES
from servetwin.app.dashboard.server import warm_up


def test_every_page_is_loaded_and_the_processes_have_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    frozen: list[bool] = []
    monkeypatch.setattr(server, "drawing", loaded.append)
    monkeypatch.setattr("gc.freeze", lambda: frozen.append(True))
    warm_up()
    assert loaded == list(PAGES)
    assert frozen == [True]
    assert shared_pool().submit(shared_pool().free_flag(), int, "7").result(60) == 7
