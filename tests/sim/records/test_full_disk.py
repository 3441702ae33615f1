"""A run on a full disk: nothing of it is under its name, and what fits is elsewhere."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.core.recorder import STEP_COLUMNS
from servetwin.sim.records.metrics import REQUEST_COLUMNS
from servetwin.sim.records.run import SUMMARY, NotSaved, Run, load_run
from tests.support.full_disk import files_at_most


def a_run(requests: int = 300) -> Run:
    """Random stamps do not compress: 8 bytes each stay 8 bytes."""
    rng = np.random.default_rng(0)
    numbers = {name: rng.random(requests) if name.endswith("_s") else 3 for name in REQUEST_COLUMNS}
    names = {"request_id": [f"r{index}" for index in range(requests)], "status": "finished"}
    stamps = pd.DataFrame({**numbers, **names, "error": ""})
    stamps["last_token_s"] += 1.0
    steps = pd.DataFrame({**dict.fromkeys(STEP_COLUMNS, 1), "start_s": rng.random(2 * requests)})
    return Run("simulation", stamps, steps, {"seed": 3}, {"cores": 2})


def sizes() -> dict[str, int]:
    """Bytes of each file of that run."""
    with TemporaryDirectory() as folder:
        return {path.name: path.stat().st_size for path in a_run().save(Path(folder)).iterdir()}


SIZES = sizes()
LARGEST = max(SIZES.values())


@given(room=st.integers(0, LARGEST + 1))
def test_all_files_are_there_or_none_and_what_fits_is_elsewhere(room: int) -> None:
    run = a_run()
    with TemporaryDirectory() as place:
        folder = Path(place) / "run"
        error = None
        with pytest.MonkeyPatch.context() as patch, files_at_most(room):
            patch.setattr("tempfile.tempdir", place)
            try:
                run.save(folder)
            except NotSaved as caught:
                error = caught
        others = [path for path in Path(place).iterdir() if path != folder]
        instead = error.instead if error else folder
        there = {path.name: path.read_bytes() for path in instead.iterdir()} if instead else {}
        fits = {name for name, size in SIZES.items() if size <= room}
        assert set(there) == (fits if fits == set(SIZES) else fits - {SUMMARY})
        assert all(len(data) == SIZES[name] for name, data in there.items() if name != SUMMARY)
        assert (error is None) == (fits == set(SIZES))
        assert error is None or not list(folder.iterdir())
        assert others == ([error.instead] if error and error.instead else [])


def test_an_old_run_stays_whole_where_the_new_one_does_not_fit(tmp_path: Path) -> None:
    a_run(5).save(tmp_path)
    with files_at_most(SIZES["meta.json"]), pytest.raises(NotSaved):
        a_run().save(tmp_path)
    assert len(load_run(tmp_path).requests) == 5


def test_the_message_says_which_file_how_much_and_where_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    size = SIZES["requests.parquet"]
    with files_at_most(size - 1), pytest.raises(NotSaved) as caught:
        a_run().save(tmp_path / "run")
    assert size == LARGEST
    assert caught.value.exit_code == 1
    assert str(caught.value) == (
        f"{tmp_path}/run/requests.parquet: its {size} bytes could not be written (File too large); "
        f"{caught.value.instead} has the run without requests.parquet"
    )
    with files_at_most(0), pytest.raises(NotSaved) as caught:
        a_run().save(tmp_path / "run")
    assert caught.value.instead is None
    assert str(caught.value).endswith(
        "(File too large), nor could meta.json, scenario.yaml, steps.parquet, summary.json; "
        f"nor could anything be written to {tmp_path}"
    )


def test_a_place_that_is_none_costs_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(NotSaved, match=r"requests\.parquet: .* \(Not a directory\)") as caught:
        a_run().save(tmp_path / "file" / "run")
    assert caught.value.instead
    pd.testing.assert_frame_equal(load_run(caught.value.instead).requests, a_run().requests)
