"""How tokens are drafted, and in which form. Free of torch."""

from dataclasses import dataclass
from typing import Literal, get_args

from servetwin.engine.drafting.draft_tree import DraftTree
from servetwin.engine.models.model_config import ModelConfig
from servetwin.workloads.errors import EngineError, require_name

Drafter = Literal["none", "model", "layers", "n-gram"]
DRAFTERS = get_args(Drafter)


@dataclass(frozen=True, slots=True)
class Drafts:
    """What drafts: another ``model``, the first ``layers`` of the model itself, or an ``n-gram``
    found earlier in the sequence.

    ``widths`` are the proposals below each token of a level; a chain of 4 is 1, 1, 1, 1. A chain
    ends behind a token of which the drafter is less sure than ``least_confidence``, or whose
    distribution has an entropy above ``most_entropy`` (nats).
    """

    drafter: Drafter = "none"
    widths: tuple[int, ...] = ()
    model: str = "tiny"
    """Preset or folder of the draft model."""
    shape: ModelConfig | None = None
    """Of a draft model with random weights that is no preset."""
    seed: int = 0
    """Of the draft model's weights."""
    layer_share: float = 0.5
    """Part of the layers that draft (``layers``), at least one of them."""
    least_confidence: float = 0.0
    most_entropy: float | None = None
    longest_match: int = 3
    """Last tokens that an ``n-gram`` looks up; without a match fewer, down to one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        require_name(self.drafter, DRAFTERS, "unknown drafter", EngineError)
        _require(all(width >= 1 for width in self.widths), "widths must be at least 1 each")
        _require(
            bool(self.widths) == (self.drafter != "none"),
            f"drafter {self.drafter!r} with widths {self.widths}: widths are what it drafts",
        )
        _require(0 < self.layer_share <= 1, "layer_share must be above 0 and at most 1")
        _require(0 <= self.least_confidence <= 1, "least_confidence must be from 0 to 1")
        _require(self.longest_match >= 1, "longest_match must be at least 1")
        is_tree = any(width > 1 for width in self.widths)
        stops = bool(self.least_confidence) or self.most_entropy is not None
        _require(
            not (is_tree and (stops or self.drafter == "n-gram")),
            "a tree is drafted whole by a model: widths must be 1 where a chain ends early and "
            "for n-grams",
        )

    @property
    def tree(self) -> DraftTree:
        """The form of the drafts."""
        return DraftTree(self.widths)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise EngineError(message)
