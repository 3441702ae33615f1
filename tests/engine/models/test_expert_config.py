"""Shapes of mixtures of experts that cannot be."""

import pytest

from servetwin.engine.models.model_config import ExpertConfig
from servetwin.workloads.errors import EngineError


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"top_k": 5}, "experts: top_k 5 of 4 experts is impossible"),
        ({"top_k": 0}, "experts: top_k 0 of 4 experts is impossible"),
        ({"groups": 3}, "experts: 1 of 3 groups of 4 experts are impossible"),
        ({"groups": 2, "top_groups": 3}, "experts: 3 of 2 groups of 4 experts are impossible"),
        ({"groups": 2, "top_k": 3}, "experts: groups of 2 are too small"),
        ({"groups": 4, "group_scorers": 2, "top_k": 1}, "experts: groups of 1 are too small"),
    ],
)
def test_impossible_mixtures_are_refused(values: dict[str, object], message: str) -> None:
    shape: dict[str, object] = {"experts": 4, "top_k": 2, "ffn_size": 8}
    with pytest.raises(EngineError, match=f"^{message}$"):
        ExpertConfig(**(shape | values))  # type: ignore[arg-type]
