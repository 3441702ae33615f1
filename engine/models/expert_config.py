"""How the feed-forward network of a layer is divided into experts."""

from dataclasses import dataclass
from typing import Literal, get_args

from servetwin.workloads.errors import EngineError

Scoring = Literal["softmax", "sigmoid"]


@dataclass(frozen=True, slots=True)
class ExpertConfig:
    """A router and its experts: Mixtral, Qwen3-MoE, DeepSeek-V2 (arXiv 2405.04434) and V3."""

    experts: int
    top_k: int
    """Experts that each token uses."""
    ffn_size: int
    """Width of one expert."""
    shared_size: int = 0
    """Width of the network beside the experts, which every token uses; 0: none."""
    dense_layers: tuple[int, ...] = ()
    """Layers with one network of the model's ``ffn_size`` instead."""
    scoring: Scoring = "softmax"
    choice_bias: bool = False
    """Whether each expert has a bias that counts for the choice, and not for the weight (V3)."""
    normalise: bool = True
    """Whether the weights of a token's experts add up to 1, before ``scale``."""
    scale: float = 1.0
    """What the weights of the experts are multiplied by."""
    groups: int = 1
    top_groups: int = 1
    """Groups from which a token's experts may come: those whose best experts score highest."""
    group_scorers: int = 1
    """Best experts of a group whose scores are added (V2: 1, V3: 2)."""

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= self.experts:
            raise EngineError(
                f"experts: top_k {self.top_k} of {self.experts} experts is impossible"
            )
        if self.scoring not in get_args(Scoring):
            raise EngineError(f"experts: unknown scoring {self.scoring!r}: use softmax or sigmoid")
        if self.experts % self.groups or not 1 <= self.top_groups <= self.groups:
            raise EngineError(
                f"experts: {self.top_groups} of {self.groups} groups of {self.experts} experts "
                "are impossible"
            )
        size = self.experts // self.groups
        if self.group_scorers > size or self.top_k > size * self.top_groups:
            raise EngineError(f"experts: groups of {size} are too small")

    def parameters(self, hidden_size: int) -> int:
        """Return the number of weights of one layer."""
        networks = 3 * hidden_size * (self.experts * self.ffn_size + self.shared_size)
        return networks + self.experts * (hidden_size + self.choice_bias)
