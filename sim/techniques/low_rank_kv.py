"""Low-rank keys and values: K and V of a sequence as products of two thin matrices each."""

from sim.shapes.mixers import Attention
from sim.shapes.part import Count
from sim.techniques.mixer_change import change_attention
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.errors import PolicyError


class LowRankKV(Technique):
    """An l x d matrix as l x r times r x d, d = k e: the prompt is compressed when computed.

    The small factor is a state of r d elements, so short sequences weigh more than before.
    """

    name = "low-rank-kv"
    family = "memory"
    kind = "algorithm"
    lossless = False
    formula = "r (l + d) elements per matrix instead of l d: saves where r < l d / (l + d)"
    source = "own arithmetic; GEAR (Kang 2024) has such factors beside a quantised cache"

    rank: Count = 256

    def apply(self, setup: Setup) -> Setup:
        """With this rank; refused where it saves at no length."""
        return change_attention(self, setup, self._factored)

    def _factored(self, attention: Attention) -> Attention:
        width = attention.kv_heads * attention.head_dim
        if self.rank >= width:
            raise PolicyError(
                f"{self.name}: rank {self.rank} saves nothing where K and V are {width} wide; it "
                f"must be less than {width}"
            )
        return attention.model_copy(update={"rank": self.rank})


def low_rank_elements(tokens: int, width: int, rank: int) -> int:
    """Elements of one matrix of ``tokens`` rows: r (l + d)."""
    return rank * (tokens + width)


def break_even_rank(tokens: int, width: int) -> float:
    """The rank at which nothing is saved: l d / (l + d)."""
    return tokens * width / (tokens + width)
