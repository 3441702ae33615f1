"""Fixtures of several files: a dashboard for each of them, and a browser that looks at it."""

from collections.abc import Iterator

import pytest

from tests.support.dashboard_app import Browser, browser, served_dashboard


@pytest.fixture(scope="module")
def dashboard_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_dashboard(tmp_path_factory.mktemp("dashboard")) as url:
        yield url


@pytest.fixture
def chromium(dashboard_url: str) -> Iterator[Browser]:
    with browser(dashboard_url) as found:
        yield found
