"""The text of a whole output."""

from collections.abc import Iterable

from servetwin.engine.text.byte_tokenizer import ByteDecoder


def decode(token_ids: Iterable[int]) -> str:
    decoder = ByteDecoder()
    return "".join(map(decoder.push, token_ids)) + decoder.flush()
