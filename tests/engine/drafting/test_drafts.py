"""What may be drafted, and what is refused with the reason."""

import pytest

from servetwin.engine.drafting.drafts import Drafts
from servetwin.workloads.errors import EngineError


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"drafter": "ngram", "widths": (1,)}, "unknown drafter 'ngram'; did you mean 'n-gram'?"),
        ({"drafter": "model", "widths": (1, 0)}, "widths must be at least 1 each"),
        ({"drafter": "model"}, "drafter 'model' with widths ()"),
        ({"widths": (1,)}, "drafter 'none' with widths (1,)"),
        ({"drafter": "layers", "widths": (1,), "layer_share": 0.0}, "layer_share must be above 0"),
        ({"drafter": "layers", "widths": (1,), "layer_share": 1.5}, "layer_share must be above 0"),
        ({"drafter": "model", "widths": (1,), "least_confidence": 2.0}, "least_confidence must be"),
        ({"drafter": "n-gram", "widths": (1,), "longest_match": 0}, "longest_match must be at"),
        ({"drafter": "n-gram", "widths": (2,)}, "a tree is drafted whole by a model"),
        ({"drafter": "model", "widths": (2,), "most_entropy": 1.0}, "a tree is drafted whole"),
    ],
)
def test_drafts_that_make_no_sense(values: dict[str, object], message: str) -> None:
    with pytest.raises(EngineError) as caught:
        Drafts(**values)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)


def test_widths_of_a_list_are_those_of_a_tuple() -> None:
    assert Drafts("model", [1, 1]) == Drafts("model", (1, 1))  # type: ignore[arg-type]
    assert Drafts("model", (3, 2)).tree.drafts == 9
