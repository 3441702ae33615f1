"""The built site, which takes long: once for all tests, on however many processes they run."""

import fcntl
import os
from pathlib import Path

import pytest

from tests.support.built_site import build
from tests.support.paths import ROOT


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, log = shared / "site", shared / "site-log.txt"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not log.exists():
            done = build(ROOT, folder)
            log.write_text(done.stderr if done.returncode else "")
    assert log.read_text() == ""
    return folder
