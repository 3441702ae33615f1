"""The file of a sweep."""

from pathlib import Path

import pytest

from servetwin.loadtest.sweep.sweep_record import SWEEP, KeptSweep, is_sweep, load_sweep
from servetwin.sim.records.run import RunError
from tests.support.swept_levels import swept


def test_a_sweep_is_read_as_it_was_saved(tmp_path: Path) -> None:
    sweep = swept(load_tests=4)
    assert not is_sweep(tmp_path)
    KeptSweep(sweep).save(tmp_path)
    assert is_sweep(tmp_path)
    assert load_sweep(tmp_path) == sweep


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"sweep": {"of": "slo"}}'])
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / SWEEP).write_text(text)
    with pytest.raises(RunError, match=SWEEP):
        load_sweep(tmp_path)
