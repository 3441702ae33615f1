"""Commands that signals end leave whole files, and runs that say they were cut off."""

import pytest

from tests.fuzz.ended_commands import try_all

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "seed"), [("generate", 3), ("loadtest", 1), ("sweep", 2)])
def test_nothing_is_torn(name: str, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert try_all([name], each=1, seed=seed) == 0, capsys.readouterr().out
