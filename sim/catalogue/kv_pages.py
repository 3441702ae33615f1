"""Groups of layers over one pool of blocks: how vLLM lays out the KV memory of a model.

vLLM 0.32: v1/core/kv_cache_utils.py (``unify_kv_cache_spec_page_size``,
``_get_kv_cache_groups_uniform_page_size``) and platforms/interface.py
(``_align_hybrid_block_size``). A block has room for as many layers of one kind as the scarcest kind
has; each further such number of layers is one more group, the last of them padded.
"""

from dataclasses import dataclass
from math import ceil

from servetwin.sim.catalogue.layers import Attention, LatentAttention, Mixer, Recurrence
from servetwin.sim.catalogue.model import ModelShape

_KERNEL_TOKENS = 16
# Tokens of which a block of a hybrid is a multiple; more where latents are read.
_LATENT_TOKENS = 128
# Kinds of layers whose numbers are within this ratio are padded to the larger number.
_NEARLY_EQUAL = 1.5


@dataclass(frozen=True, slots=True)
class KVPages:
    """``groups`` as ``kv_groups`` names them; a block of ``block_tokens`` takes ``block_bytes``."""

    groups: str
    block_tokens: int
    block_bytes: float


def kv_pages(
    model: ModelShape, block_tokens: int, element_bytes: float, state_bytes: float
) -> KVPages:
    """Return the groups of a model, at these bytes per element of keys and values, and of states.

    A recurrent state fills one block, so blocks of a hybrid have as many tokens as that takes.
    A page has the size of the largest; it holds several smaller ones of as many layers.
    """
    mixers = [(group.count, group.mixer) for group in model.layers]
    per_token = max(mixer.kv_elements() for _, mixer in mixers) * element_bytes
    states = [m.state_elements() * state_bytes for _, m in mixers if isinstance(m, Recurrence)]
    if states and per_token:
        latent = any(isinstance(mixer, LatentAttention) for _, mixer in mixers)
        step = max(_LATENT_TOKENS if latent else _KERNEL_TOKENS, block_tokens)
        block_tokens = step * ceil(max(states) / (step * per_token))
    layers: dict[tuple[str, float], int] = {}
    for count, mixer in mixers:
        page = mixer.kv_elements() * element_bytes * block_tokens
        if isinstance(mixer, Recurrence):
            page = block_tokens * per_token or mixer.state_elements() * state_bytes
        layers[_kind(mixer), page] = layers.get((_kind(mixer), page), 0) + count
    if len({kind for kind, _ in layers}) == 1:
        groups = next(iter(layers))[0]
        block_bytes = sum(page * number for (_, page), number in layers.items())
    else:
        groups, block_bytes = _grouped(layers)
    if factors := sum(n * m.state_elements() for n, m in mixers if isinstance(m, Attention)):
        tokens = ceil(factors * state_bytes * block_tokens / block_bytes)
        groups += f",state:{tokens}"
    return KVPages(groups, block_tokens, block_bytes)


def _kind(mixer: Mixer) -> str:
    """Return what a layer keeps, as ``kv_groups`` names it."""
    if isinstance(mixer, Recurrence):
        return "state"
    limit = mixer.resident_limit()
    if limit is None or not isinstance(mixer, Attention):
        return "full"
    if mixer.sink_tokens or mixer.budget_tokens is not None:
        return f"kept:{limit}"
    return f"{'chunk' if mixer.chunked else 'window'}:{limit}"


def _grouped(layers: dict[tuple[str, float], int]) -> tuple[str, float]:
    """Return the groups of layers of several kinds, and the bytes of a block."""
    largest = max(page for _, page in layers)
    pages = {(kind, page): ceil(n / (largest // page)) for (kind, page), n in layers.items()}
    least, most = min(pages.values()), max(pages.values())
    size = most if most < _NEARLY_EQUAL * least else least
    counts = [(ceil(number / size), kind) for (kind, _), number in pages.items()]
    return ",".join(f"{n}x{kind}" if n > 1 else kind for n, kind in counts), largest * size
