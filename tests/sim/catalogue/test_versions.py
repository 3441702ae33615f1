"""Versions as servers and their images have them."""

from typing import Any

import pytest

from servetwin.sim.catalogue.servers import read_server
from servetwin.sim.catalogue.versions import of_version, version_numbers
from servetwin.sim.step_times.roofline.efficiency import served_efficiency

ENTRIES: list[dict[str, Any]] = [{"until": [0, 9], "name": "old"}, {"name": "new"}]


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("0.8.5", "old"), ("v0.8.5.post1", "old"), ("0.9", "new"), ("0.9.0rc2", "new"),
        ("0.10.1", "new"), ("2026.1.1", "new"), ("nightly", "new"), (None, "new"),
    ],
)  # fmt: skip
def test_an_entry_holds_until_the_next_one(version: str | None, name: str) -> None:
    assert of_version(ENTRIES, version)["name"] == name


def test_parts_are_compared_as_numbers() -> None:
    assert version_numbers("0.9.2") < version_numbers("0.19.0") < version_numbers("nightly")


@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
def test_a_version_of_years_to_come_is_the_newest(backend: str) -> None:
    assert served_efficiency(backend, "h100", "2026.1.1") == served_efficiency(backend, "h100")
    ours, newest = read_server(f"{backend}@2026.1.1"), read_server(backend)
    assert ours.policy_settings(80e9, "h100") == newest.policy_settings(80e9, "h100")
