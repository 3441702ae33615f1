"""The colours of the words for where step times come from, and phrases of several."""

import pytest

from servetwin.app.words import LOOKS, origin_sentences, origin_shares, origin_words
from servetwin.sim.step_times.provenance import MEANINGS, Origin


def test_every_origin_has_a_colour_of_its_own_from_the_palette() -> None:
    pytest.importorskip("plotly", reason="the palette stands with the figures")
    from servetwin.app.figures.canvas import COLOURS

    assert set(LOOKS) == set(MEANINGS)
    colours = [colour for colour, _ in LOOKS.values()]
    assert len(set(colours)) == len(MEANINGS)
    assert set(colours[:-1]) <= set(COLOURS)


def test_several_origins_are_one_phrase() -> None:
    assert origin_words(["measured here"]) == "measured here"
    twice: tuple[Origin, ...] = ("measured here", "kernel tables", "measured here")
    assert origin_words(twice) == "measured here and kernel tables"
    assert origin_words([*MEANINGS][:3]) == "measured here, measured by others and kernel tables"
    assert (
        origin_sentences(["kernel tables"])
        == f"Step times: kernel tables. {MEANINGS['kernel tables']}"
    )


def test_shares_sum_to_one_and_keep_the_colour_of_their_origin() -> None:
    found = origin_shares(
        {
            "origins": {"kernel tables": 0.25, "measured here": 0.75},
            "extrapolated": {"measured here": 0.75},
        }
    )
    assert [(one.name, one.share) for one in found] == [
        ("extrapolated from it", 0.75),
        ("kernel tables", 0.25),
    ]
    assert found[0].look == (LOOKS["measured here"][0], "x")
    assert found[1].meaning == MEANINGS["kernel tables"]
