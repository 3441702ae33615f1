"""How the engine computes: device, number format and kernels. Free of torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.drafting.drafts import Drafts


@dataclass(frozen=True, slots=True)
class Computation:
    """The choices that change how a model is computed, and not which requests run when.

    ``device`` auto is CUDA where there is one; ``dtype`` auto is bfloat16 there and float32 on the
    CPU; ``attention`` is auto, native, per-sequence, padded or triton. ``threads`` is
    process-wide. ``prepack``: weights on the CPU are kept in the layout of the fastest product
    here. ``graphs``: on CUDA, steps that only decode are captured at start, for buckets of batch
    sizes.
    """

    device: str = "auto"
    dtype: str = "auto"
    threads: int = 1
    attention: str = "auto"
    prepack: bool = True
    graphs: bool = True
    tensor_parallel: int = 1
    """Processes that share the model, each with a slice of every weight."""
    drafts: Drafts = Drafts()  # noqa: RUF009, it is frozen
    """What drafts tokens that decodes verify (``batching: speculative``)."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Computation":
        """Return what ``dataclasses.asdict`` made a dictionary of."""
        return cls(**{**values, "drafts": Drafts(**values["drafts"])})
