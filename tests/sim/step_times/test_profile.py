"""Profiles: files that are wrong are named with the field that is."""

import json
from pathlib import Path

import pytest

from sim.step_times.profile import load_profile
from tests.support.command import refused
from tests.support.paths import SAMPLE


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"decode_contexts": 5}, "unknown features"),
        ({"decode_sequences": -1}, "decode_sequences: the largest value measured cannot be -1"),
    ],
)
def test_impossible_ranges_are_named(
    tmp_path: Path, ranges: dict[str, float], message: str
) -> None:
    raw = load_profile("base-cpu").model_dump(by_alias=True)
    raw["layouts"]["paged"]["ranges"] = ranges
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(raw))
    line = refused("replay", SAMPLE, "--profile", path)
    assert "layouts.paged.ranges" in line
    assert message in line
