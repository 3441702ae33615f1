"""How the engine computes: device, number format and kernels. Free of torch."""

from dataclasses import dataclass

from servetwin.engine.drafting.drafts import Drafts
from servetwin.workloads.errors import EngineError


@dataclass(frozen=True, slots=True)
class Computation:
    """The choices that change how a model is computed, and not which requests run when.

    ``device`` auto is CUDA where there is one; ``dtype`` auto is bfloat16 there and float32 on the
    CPU; ``attention`` is auto, native, per-sequence or triton. ``threads`` is
    process-wide. ``prepack``: weights on the CPU are kept in the layout of the fastest product
    here.

    ``weight_format`` as-dtype keeps weights in ``dtype``. Others lose precision: int8 and int4
    widen rounded weights inside the product (int4 has a scale and a middle for each
    ``weight_group`` inputs); w8a8 rounds the rows that enter the product as well, each by its
    largest number, and multiplies integers. ``kv_format`` int8 stores keys and values with a scale
    for each head of a token.

    ``graphs``: on CUDA, steps that only decode are captured at start, for buckets of batch sizes.
    Without ``kv_cache`` nothing is stored: each step computes the whole contexts anew.

    ``kv_memory_share``: share of a CUDA device's memory for weights, steps, keys and values; the KV
    memory is what remains. 0: it has the policies' ``kv_tokens``. ``tensor_parallel``: processes
    that share the model, each with a slice of every weight. ``adapters``: (name, folder) of each
    LoRA adapter that requests may name as their model. ``exits``: (share of the layers,
    probability) with which a decode leaves there; empty: none leaves. ``drafts``: what drafts
    tokens that decodes verify (``draft_rows``).
    """

    device: str = "auto"
    dtype: str = "auto"
    threads: int = 1
    attention: str = "auto"
    prepack: bool = True
    weight_format: str = "as-dtype"
    weight_group: int = 128
    kv_format: str = "as-dtype"
    kv_cache: bool = True
    graphs: bool = True
    kv_memory_share: float = 0.0
    tensor_parallel: int = 1
    adapters: tuple[tuple[str, str], ...] = ()
    exits: tuple[tuple[float, float], ...] = ()
    drafts: Drafts = Drafts()  # noqa: RUF009, it is frozen

    def __post_init__(self) -> None:
        if not self.exits:
            return
        depths, shares = zip(*self.exits, strict=True)
        if min(depths) <= 0 or max(depths) > 1 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
            raise EngineError(
                f"exits {self.exits}: depths must be above 0 and at most 1, and their "
                "probabilities from 0 on and 1 in all"
            )
