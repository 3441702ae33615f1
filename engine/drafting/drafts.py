"""How tokens are drafted, and in which form. Free of torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from servetwin.engine.drafting.draft_tree import DraftTree
from servetwin.engine.models.model_config import ModelConfig
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError, did_you_mean

Drafter = Literal["none", "model", "layers", "n-gram"]
DRAFTERS = ("none", "model", "layers", "n-gram")


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
        if self.drafter not in DRAFTERS:
            raise EngineError(
                f"unknown drafter {self.drafter!r}; {did_you_mean(self.drafter, DRAFTERS)}"
            )
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

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Drafts":
        """Return what ``dataclasses.asdict`` made a dictionary of."""
        shape = values["shape"]
        return cls(**{**values, "shape": shape and ModelConfig.from_values(shape)})

    @property
    def tree(self) -> DraftTree:
        """The form of the drafts."""
        return DraftTree(self.widths)


def require_fit(drafts: Drafts, policies: PolicyConfig) -> None:
    """Raise ``EngineError`` where a server's decodes verify other drafts than are made."""
    rows = policies.draft_rows if policies.batching == "speculative" else 0
    made = drafts.tree.drafts if drafts.widths else 0
    if rows and not made:
        raise EngineError(
            f"batching: speculative with draft_rows {rows} needs a drafter: --technique "
            f"speculative:drafts={rows} has one; or set draft_rows to 0"
        )
    if made != rows:
        raise EngineError(
            f"drafts of {made} tokens a pass need batching: speculative with draft_rows {made}, "
            f"not {policies.batching} with {policies.draft_rows}"
        )
    if rows and drafts.drafter == "model" and policies.host_cache_tokens:
        raise EngineError(
            f"host_cache_tokens: the host keeps no keys and values of draft model {drafts.model}; "
            "set 0, or draft with layers or n-grams"
        )
    if rows and not policies.prompt_token:
        raise EngineError(
            "prompt_token false is simulated only; the bundled engine's prompts yield the first "
            "token, use prompt_token: true"
        )


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise EngineError(message)
