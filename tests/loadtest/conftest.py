"""Settings of every test of the load tester."""

import pytest


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and headers that a test sets in the environment end with it."""
    for name in ("OPENAI_API_KEY", "SERVETWIN_API_KEY_ENV", "SERVETWIN_HEADERS"):
        monkeypatch.setenv(name, "")
