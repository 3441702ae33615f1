"""Shapes of the matrices of one block: a column for each token."""

from servetwin.sim.catalogue.layers import Attention, Dense
from servetwin.sim.catalogue.model import ModelShape
from servetwin.workloads.errors import PolicyError

Shape = tuple[int, int]


def block_shapes(model: ModelShape, rows: int, context_tokens: int) -> dict[str, Shape]:
    """Return the shapes for ``rows`` new tokens that end a context of ``context_tokens``.

    Raises ``PolicyError`` where the first layer is no softmax attention with a dense FFN, or the
    rows are more than the context.
    """
    first = model.layers[0]
    mixer, ffn = first.mixer, first.ffn
    if not (isinstance(mixer, Attention) and isinstance(ffn, Dense)):
        raise PolicyError(f"{model.name}: shapes are those of softmax attention and a dense FFN")
    if not 1 <= rows <= context_tokens:
        raise PolicyError(f"{rows} rows cannot end a context of {context_tokens} tokens")
    return {
        "tokens": (model.vocabulary, rows),
        "block input": (model.width, rows),
        "query of a head": (mixer.head_dim, rows),
        "key of a head": (mixer.head_dim, rows),
        "cached keys before": (mixer.head_dim, context_tokens - rows),
        "cached keys": (mixer.head_dim, context_tokens),
        "scores of a head": (context_tokens, rows),
        "output of a head": (mixer.head_dim, rows),
        "all heads": (mixer.heads * mixer.head_dim, rows),
        "attention output": (model.width, rows),
        "FFN inside": (ffn.width, rows),
        "block output": (model.width, rows),
        "logits": (model.vocabulary, rows),
    }
