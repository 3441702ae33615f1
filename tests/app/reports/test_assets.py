"""The tables of words and looks: whatever the simulator names has its words, in the same order."""

from typing import get_args

import pytest

from servetwin.app.words import asset, asset_table
from servetwin.sim.explain.bottleneck import QueueCause, Resource
from servetwin.sim.explain.explain import PARTS
from servetwin.sim.step_times.provenance import MEANINGS
from servetwin.sim.techniques.effects import METRICS

WORDS, LOOKS = asset_table("words.yaml"), asset_table("looks.yaml")


def test_every_cause_of_waiting_has_words() -> None:
    assert set(WORDS["causes"]) == set(get_args(QueueCause))
    assert all(set(words) == {"of_one", "of_most"} for words in WORDS["causes"].values())


def test_every_resource_has_words() -> None:
    assert tuple(WORDS["resources"]) == get_args(Resource)


def test_every_effect_has_a_head_and_a_meaning_in_the_order_of_the_table() -> None:
    assert tuple(WORDS["effects"]) == tuple(METRICS)
    assert all(set(words) == {"head", "label", "meaning"} for words in WORDS["effects"].values())


def test_a_feature_has_a_place_for_the_value_that_was_reached() -> None:
    assert all(text.count("{}") == 1 for text in WORDS["features"].values())


def test_every_part_of_a_latency_has_a_look() -> None:
    assert set(PARTS) <= set(LOOKS["request"])


def test_every_evidence_has_words_and_a_look() -> None:
    assert list(WORDS["evidence"]) == list(LOOKS["evidence"])
    for words in WORDS["evidence"].values():
        assert set(words) == {"origin", "label", "meaning"}
        assert words["origin"] in MEANINGS


@pytest.mark.parametrize("table", LOOKS)
def test_no_two_parts_of_a_bar_look_alike(table: str) -> None:
    looks = [tuple(look) for look in LOOKS[table].values() if isinstance(look, list)]
    assert len(set(looks)) == len(looks)


def test_a_text_is_read_as_it_is() -> None:
    assert "figure" in asset("report.css")
