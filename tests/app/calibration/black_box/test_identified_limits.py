"""What a calibration identified, what it could not, and its notes."""

from servetwin.app.calibration.black_box.identified_limits import IdentifiedLimits


def test_it_says_what_was_identified_and_what_was_not() -> None:
    limits = IdentifiedLimits(longest=100)
    limits.unknown("no time", "max_seqs", "kv_tokens")
    limits.found(max_seqs=4)
    limits.unknown("again", "max_seqs")
    assert limits.as_dict()["not identified"] == {"kv_tokens": "no time"}
    assert limits.policies().kv_tokens >= 4 * 100
    assert "  max_seqs        4" in limits.lines()


def test_the_note_about_prompts_is_the_last() -> None:
    limits = IdentifiedLimits(longest=10, notes=["first"], prompts="prompts are text")
    assert limits.as_dict()["notes"] == ["first", "prompts are text"]
    assert limits.lines()[-1] == "note: prompts are text"
