"""The meaning of the name of a column, whatever its case, its order and its marks.

A name is taken where *all* of its words are known: ``prompt_tokens``, ``Input Tokens (count)``,
``Eingabe-Token`` and ``usage.prompt_tokens`` are the tokens of the prompt; ``prompt_tokens_price``
is nothing.
"""

import re
from functools import cache
from typing import Any
from unicodedata import normalize

from servetwin.workloads.program.package import shipped_json

_PIECE = re.compile(r"[A-Za-z0-9]+")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+")
_KNOWN: dict[str, Any] = shipped_json("workloads/tables/words.json")


def known_words(kind: str) -> frozenset[str]:
    """Return the words of a kind: in the names of columns or, by themselves, in cells."""
    return frozenset(_KNOWN["words"][kind])


_UNITS = {word: unit for unit, words in _KNOWN["units"].items() for word in words}
_LEFT_OUT = known_words("left out")
_TOKENS, _COUNT = known_words("tokens"), known_words("count")
# The length of a request may be in bytes; that of a context may be the limit of a model.
_LENGTHS = known_words("lengths")
_ASKED, _ANSWERED = known_words("prompt"), known_words("answer")
_ASKED_IN_TOKENS = _ASKED | known_words("prompt in tokens")
_ANSWERED_IN_TOKENS = _ANSWERED | known_words("answer in tokens")
# Words that may stand for a count of tokens without saying so.
_COUNTED_ALONE = {word: name for name, words in _KNOWN["counts alone"].items() for word in words}
_ARRIVES, _BEGINS = known_words("arrives"), known_words("begins")
_MOMENTS, _BESIDE = known_words("moments"), known_words("beside a moment")
_BY_PHRASE: dict[tuple[str, ...], list[str]] = {}
for _quantity, _phrases in _KNOWN["phrases"].items():
    for _phrase in _phrases:
        _BY_PHRASE.setdefault(tuple(_phrase.split()), []).append(_quantity)


@cache
def meanings(name: str) -> tuple[str, ...]:
    """Return the quantities that a column of this name may hold, the likeliest first."""
    words = tuple(word for word in _words(name) if word not in _LEFT_OUT)
    bare = _without_unit(words)
    quantities = [*_BY_PHRASE.get(words, ()), *_BY_PHRASE.get(bare, ())]
    if counted := _tokens(words):
        quantities.insert(0, counted)
    if _is_arrival(bare):
        quantities.append("arrival")
    return tuple(dict.fromkeys(quantities))


def unit_in(name: str) -> str | None:
    """Return the unit of time that a name ends with, as in ``ttft_ms`` or ``Latency (s)``."""
    words = _words(name)
    return _UNITS.get(words[-1]) if len(words) > 1 else None


def says_arrival(name: str) -> bool:
    """Return whether a name says arrival, and no other beginning."""
    return not _ARRIVES.isdisjoint(_words(name))


def says_tokens(name: str) -> bool:
    """Return whether a name says tokens, so that no number in it is any other count."""
    return not _TOKENS.isdisjoint(_words(name))


def is_plain_time(name: str) -> bool:
    """Return whether a name may be a duration as well as a moment."""
    return (_ARRIVES | _BEGINS).isdisjoint(_words(name))


def _words(name: str) -> tuple[str, ...]:
    plain = normalize("NFKD", name.replace("gen_ai", "")).encode("ascii", "ignore").decode()
    pieces = _PIECE.findall(plain)
    split = (_WORD.findall(piece) if not piece.isupper() else [piece] for piece in pieces)
    return tuple(word.lower() for words in split for word in words)


def _without_unit(words: tuple[str, ...]) -> tuple[str, ...]:
    return words[:-1] if len(words) > 1 and words[-1] in _UNITS else words


def _tokens(words: tuple[str, ...]) -> str | None:
    if len(words) == 1:
        return _COUNTED_ALONE.get(words[0])
    present = set(words) - _COUNT
    if present & _TOKENS:
        asks, answers, units = _ASKED_IN_TOKENS, _ANSWERED_IN_TOKENS, _TOKENS | _LENGTHS
    else:
        asks, answers, units = _ASKED, _ANSWERED, _LENGTHS
    kind = present - units
    if not present & units or not kind:
        return None
    return "prompt_tokens" if kind <= asks else "output_tokens" if kind <= answers else None


def _is_arrival(words: tuple[str, ...]) -> bool:
    present = set(words)
    if present - _ARRIVES - _BEGINS - _MOMENTS - _BESIDE:
        return False
    return bool(present & (_ARRIVES | _BEGINS | _MOMENTS))
