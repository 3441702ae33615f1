"""What the server does before it listens."""

from pathlib import Path

import pytest

from servetwin.app.dashboard import server
from servetwin.app.dashboard.jobs.process_pool import shared_pool
from servetwin.app.dashboard.server import warm_up
from tests.support.paths import ROOT


def test_every_page_is_loaded_and_the_processes_have_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    frozen: list[bool] = []
    monkeypatch.setattr(server, "import_module", loaded.append)
    monkeypatch.setattr("gc.freeze", lambda: frozen.append(True))
    warm_up()
    pages = Path(ROOT, "app/dashboard").glob("*/page.py")
    assert loaded == sorted(f"servetwin.app.dashboard.{page.parent.name}.page" for page in pages)
    assert frozen == [True]
    assert shared_pool().submit(shared_pool().free_flag(), int, "7").result(60) == 7
