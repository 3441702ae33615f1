"""Settings of every test: how many examples hypothesis tries, and the dashboard in a browser.

Hypothesis has three profiles. ``default`` is for the inner loop, ``ci`` tries the full number of
examples (chosen where the environment has ``CI``); both draw the same examples in every run.
``search`` draws others each time: ``pytest --hypothesis-profile=search``. None has a deadline: a
busy machine is not an error.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.dashboard_app import Browser, browser, served_dashboard

settings.register_profile("default", max_examples=20, deadline=None, derandomize=True)
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True)
settings.register_profile("search", max_examples=500, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="module")
def dashboard_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_dashboard(tmp_path_factory.mktemp("dashboard")) as url:
        yield url


@pytest.fixture
def chromium(dashboard_url: str) -> Iterator[Browser]:
    with browser(dashboard_url) as found:
        yield found
