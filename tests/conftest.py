"""Settings of every test: how many examples hypothesis tries, and one dashboard and one
Chromium for all tests of a process.

Hypothesis has four profiles. ``quick`` is for the inner loop, ``default`` for all tests, ``ci``
tries the full number of examples (chosen where the environment has ``CI``); these draw the same
examples in every run.
``search`` draws others each time: ``pytest --hypothesis-profile=search``. None has a deadline: a
busy machine is not an error.
"""

import gc
import os
import shutil
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from pluggy import PluggyTeardownRaisedWarning

# Tests run the sources, whatever is compiled; `make test-compiled` sets it empty.
os.environ.setdefault("SERVETWIN_PURE", "1")

from tests.support.dashboard_app import (  # imports the core, pure or compiled
    Browser,
    Chromium,
    ServedDashboard,
    served_dashboard,
)
from tests.support.effort import FULL

# Python 3.11 would trace every line of every example for the phase that explains a failure.
PHASES = tuple(phase for phase in Phase if phase is not Phase.explain)
BUSY = settings(deadline=None, phases=PHASES)
MAIN_MODULE = sys.modules["__main__"]
settings.register_profile("default", BUSY, max_examples=10, derandomize=True)
settings.register_profile("ci", BUSY, max_examples=100, derandomize=True)
settings.register_profile("quick", BUSY, max_examples=5, derandomize=True)
settings.register_profile("search", BUSY, max_examples=500)
settings.load_profile("ci" if FULL else "default")

# Triton decides once, when it is first imported; to ask torch for a GPU would take a second.
if not Path("/dev/nvidiactl").exists() and not shutil.which("nvidia-smi"):
    os.environ.setdefault("TRITON_INTERPRET", "1")


BEGUN_FIRST = (
    "tests/app/dashboard/",
    "tests/docs/test_examples.py",
    "tests/app/calibration/test_step_log.py",
    "tests/app/calibration/",
    "tests/app/verdict/",
    "tests/app/serving/",
    "tests/app/commands/test_verify.py",
    "tests/app/commands/test_calibrate.py",
    "tests/sim/theory/cases/",
    "tests/engine/",
    "tests/app/",
    "tests/loadtest/run/",
    "tests/sim/experiments/",
)
"""The tests that take longest, so that none of them is left to one process at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of ``BEGUN_FIRST`` before the others, else in the order of the files."""

    def place(item: pytest.Item) -> int:
        begins = map(item.nodeid.startswith, BEGUN_FIRST)
        return next((number for number, found in enumerate(begins) if found), len(BEGUN_FIRST))

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file on one process, and all tests of the dashboard, which share one."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class SharedDashboard(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "dashboard" if "/dashboard/" in file else file

    return SharedDashboard(config, log)


def pytest_runtest_setup() -> None:
    """Undo what Streamlit's ``AppTest`` leaves: its page as the main module, which the processes
    that other tests start would run.
    """
    sys.modules["__main__"] = MAIN_MODULE


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: "pytest.CallInfo[None]"
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let no report end the whole run: not by the lone surrogates of odd inputs, which are written
    as escapes, nor by Python 3.11, which fails to parse source while another thread does.
    """
    try:
        report = yield
    except (SystemError, PluggyTeardownRaisedWarning) as error:
        text, when = f"{error}, while this was reported: {call.excinfo!r}", call.when
        assert when != "collect"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, when)
    report.sections = [(name, _encodable(text)) for name, text in report.sections]
    if report.failed and _encodable(written := str(report.longrepr)) != written:
        report.longrepr = _encodable(written)
    return report


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def pytest_collection_finish() -> None:
    """Spare the garbage collector the modules and tests, which live to the end.

    Every load test begins with a full collection, which takes a tenth of a second with them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    program = Chromium()
    yield program
    program.close()


@pytest.fixture(scope="session")
def dashboard(
    chromium: Chromium, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedDashboard]:
    with served_dashboard(tmp_path_factory.mktemp("dashboard")) as served:
        yield served


@pytest.fixture
def user(dashboard: ServedDashboard, chromium: Chromium) -> Iterator[Browser]:
    """A user whose page remembers nothing of the test before; the runs that they keep go too."""
    with chromium.page() as page:
        browser = Browser(page, dashboard)
        yield browser
        browser.leave()
    for run in dashboard.runs.iterdir():
        shutil.rmtree(run)
