"""Whether a checkpoint has the tensors of its model, and no others."""

import re
from collections.abc import Mapping

from servetwin.engine.checkpoint.tensor_files import DTYPE_BYTES, StoredTensor
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.tensor_layout import HEAD, Part, all_parts, expert_names
from servetwin.workloads.errors import EngineError

_HARMLESS = re.compile(r"(^|\.)(rotary_emb\.inv_freq|masked_bias|attn\.bias)$")
"""Tensors of old files that are computed, and not learned."""
_NAMED_AT_MOST = 3


def check_tensors(model: ModelConfig, stored: Mapping[str, StoredTensor], where: str) -> None:
    """Raise ``EngineError`` that names a tensor which is missing, misshapen, of a number format
    that is not read, or not of this model. ``where`` names the folder.
    """
    expected = {part.name: part for part in all_parts(model, expert_names(stored))}
    missing = [name for name in expected if name not in stored]
    extra = [name for name in stored if name not in expected and not _is_harmless(model, name)]
    if missing:
        has = f"; it has {extra[0]}, which the model has not" if extra else ""
        raise EngineError(f"{where}: {_named(missing)} missing{_tied(missing)}{has}")
    if extra:
        raise EngineError(
            f"{where}: {_named(extra)} not of the model that config.json describes, and would be "
            "left out"
        )
    for part in expected.values():
        _check(part, stored[part.name])


def has_same_tensors(model: ModelConfig, other: ModelConfig) -> bool:
    """Return whether the weights of one model are as many and as large as those of the other."""
    return [*all_parts(model)] == [*all_parts(other)]


def _check(part: Part, stored: StoredTensor) -> None:
    if stored.shape != part.shape:
        raise EngineError(
            f"{stored.file}: tensor {part.name} is {list(stored.shape)}, and config.json makes it "
            f"{list(part.shape)}"
        )
    if stored.dtype not in DTYPE_BYTES:
        raise EngineError(
            f"{stored.file}: tensor {part.name} is of {stored.dtype}; the engine reads "
            f"{', '.join(DTYPE_BYTES)}"
        )


def _is_harmless(model: ModelConfig, name: str) -> bool:
    return bool(_HARMLESS.search(name)) or (name == HEAD and model.tie_embeddings)


def _named(names: list[str]) -> str:
    """Return a beginning of a sentence on some tensors, up to its verb."""
    if len(names) == 1:
        return f"tensor {names[0]} is"
    more = len(names) - _NAMED_AT_MOST
    return (
        f"tensors {', '.join(names[:_NAMED_AT_MOST])}{f' and {more} more' if more > 0 else ''} are"
    )


def _tied(missing: list[str]) -> str:
    return " (and tie_word_embeddings is not true)" if missing == [HEAD] else ""
