"""The text of a whole output."""

from collections.abc import Iterable

from engine.text.tokenizer import IncrementalDecoder


def decode(token_ids: Iterable[int]) -> str:
    decoder = IncrementalDecoder()
    return "".join(map(decoder.push, token_ids)) + decoder.flush()
