"""Cancellation tests: clients who hang up before their answer is whole."""

import re
from dataclasses import dataclass

from loadtest.plan.random_streams import Draws, request_stream
from workloads.errors import LoadTestError

_EXAMPLE = "write for example share=0.1,after=5tokens or share=0.1,after=200ms"
_UNITS_S = {"ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, slots=True)
class HangUp:
    """When a client leaves: after so many tokens, or so long after it began to ask."""

    after_tokens: int | None = None
    after_s: float | None = None

    def __str__(self) -> str:
        if self.after_tokens is not None:
            return f"after {self.after_tokens} tokens"
        return f"after {1e3 * (self.after_s or 0.0):g} ms"


@dataclass(frozen=True, slots=True)
class Cancellation:
    """Which ``share`` of the requests is hung up, and when."""

    share: float
    hang_up: HangUp

    def of(self, request_id: str, seed: int) -> HangUp | None:
        """Whether this request is one of them; drawn from its own stream."""
        draw = request_stream(seed, Draws.CANCELLATION, request_id).random()
        return self.hang_up if draw < self.share else None


def parse_cancellation(text: str) -> Cancellation:
    """As people write it: ``share=0.1,after=5tokens``, ``share=0.1,after=200ms``.

    Raises ``LoadTestError`` naming the part that cannot be read.
    """
    parts = dict(_part(part, text) for part in text.split(","))
    if parts.keys() != {"share", "after"}:
        raise LoadTestError(f"--cancel {text!r}: wants share and after; {_EXAMPLE}")
    return Cancellation(_share(parts["share"]), _hang_up(parts["after"]))


def _part(part: str, text: str) -> tuple[str, str]:
    name, _, value = (piece.strip() for piece in part.partition("="))
    if name not in ("share", "after"):
        raise LoadTestError(f"--cancel {text!r}: unknown part {part.strip()!r}; {_EXAMPLE}")
    return name, value


def _share(text: str) -> float:
    if not re.fullmatch(r"\d*\.?\d+", text) or not 0 < float(text) <= 1:
        raise LoadTestError(f"--cancel: share {text!r} is not above 0 and at most 1; {_EXAMPLE}")
    return float(text)


def _hang_up(text: str) -> HangUp:
    if (match := re.fullmatch(r"(\d+)\s*tokens?", text)) and int(match[1]):
        return HangUp(after_tokens=int(match[1]))
    if (match := re.fullmatch(r"(\d*\.?\d+)\s*(ms|s)", text)) and float(match[1]):
        return HangUp(after_s=float(match[1]) * _UNITS_S[match[2]])
    raise LoadTestError(f"--cancel: after {text!r} is neither tokens nor ms or s; {_EXAMPLE}")
