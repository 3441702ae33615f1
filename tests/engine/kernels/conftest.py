import pytest

from servetwin.engine.kernels import choose_operators


@pytest.fixture(autouse=True)
def _operators_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take no operators in C: what records and counts operators sees those of torch alone."""
    monkeypatch.setattr(choose_operators, "native_operators", lambda: None)
