"""Files of ours are replaced where that is asked for; other files never."""

import os
from pathlib import Path

import pytest

from servetwin.sim.records.run_claim import ClaimError, claimed_file, claimed_output

PROFILE = '{"layouts": {}}'


def write(path: Path, *, overwrite: bool = False) -> None:
    with claimed_output(path, "profile", overwrite=overwrite) as place:
        place.write_text(PROFILE)


def test_a_profile_needs_overwrite_to_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "mine.json"
    write(path)
    with pytest.raises(ClaimError, match=r"mine\.json: is a profile; --overwrite replaces it"):
        write(path)
    write(path, overwrite=True)
    assert os.listdir(path.parent) == ["mine.json"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '"layouts"', "\xff"])
def test_any_other_file_is_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text, "latin-1")
    with pytest.raises(ClaimError, match="is there, and is no profile"):
        write(path, overwrite=True)
    assert path.read_text("latin-1") == text


def test_a_place_where_no_file_can_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, why in ((tmp_path, "a folder"), (tmp_path / "file" / "x", "cannot be made")):
        with pytest.raises(ClaimError, match=why), claimed_file(path):
            pass


def test_two_at_once_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    with claimed_file(path):
        said = f"process {os.getpid()} writes there"
        with pytest.raises(ClaimError, match=said), claimed_file(path):
            pass
        assert os.listdir(tmp_path) == [".points.csv.claim"]
    assert os.listdir(tmp_path) == []
