"""The rules of lanes: how many there are, and how they replay sessions."""

import re
from dataclasses import dataclass, fields
from math import inf
from typing import ClassVar

from servetwin.workloads.errors import TraceError, did_you_mean
from servetwin.workloads.key_values import key_values

FORM = "N[:agentx][,KEY=N,...]"
AGENTX = "agentx"
LEAST_MEASURED_S = 900.0
"""A shorter measured phase breaks the rules of AgentX."""
MOST_OVERFLOWED = 0.01
"""A larger share of sessions that outgrow the context breaks them too."""
_LOCKED = {"idle": 10.0, "from": 0.0, "to": 1.0}
"""What AgentX fixes (AIPerf, ``docs/benchmark-modes/semianalysis-agentx-faq.md``)."""


@dataclass(frozen=True, slots=True)
class LaneRules:
    """How ``lanes`` replay the sessions of a trace (``workloads.graphs.lanes``).

    The first session of a lane begins at a share of its recorded time, drawn by ``seed`` between
    ``first_from`` and ``first_to``. Gaps are cut to ``idle_s``; nothing is sent ``duration_s``
    after the measured phase began. ``scenario`` names the benchmark whose rules these are.

    ``users`` are lanes that replay a tree each, again and again, from when it arrives on, with
    prompts that they share within a round.
    """

    lanes: int
    idle_s: float = 10.0
    first_from: float = 0.25
    first_to: float = 0.75
    duration_s: float = 1800.0
    seed: int = 0
    scenario: str | None = None
    users: bool = False
    KEYS: ClassVar = {
        "idle": "idle_s", "from": "first_from", "to": "first_to", "duration": "duration_s",
    }  # fmt: skip

    def __post_init__(self) -> None:
        if self.lanes < 1:
            raise TraceError(f"--lanes {self.lanes}: must be 1 or more")
        if not 0 <= self.first_from <= self.first_to <= 1:
            raise TraceError(
                f"--lanes: first sessions begin from {self.first_from:g} to {self.first_to:g} of "
                "their time, and shares are 0 <= from <= to <= 1"
            )
        if not self.idle_s >= 0 or not 0 < self.duration_s < inf:
            raise TraceError("--lanes: idle must be 0 s or more, duration above 0 s")

    @classmethod
    def parsed(cls, text: str, seed: int) -> "LaneRules":
        """Read ``8``, ``8:agentx`` or ``8:idle=10,duration=900``; raises ``TraceError``."""
        count, _, settings = text.partition(":")
        if not re.fullmatch(r"\d{1,6}", count, re.ASCII):
            raise TraceError(f"--lanes {text!r}: {count!r} is no number of lanes; write {FORM}")
        name, _, rest = settings.partition(",")
        scenario = name if name == AGENTX else None
        values = _numbers(rest if scenario else settings)
        if scenario and (fixed := next((key for key in values if key in _LOCKED), None)):
            raise TraceError(f"--lanes: {AGENTX} fixes {fixed} at {_LOCKED[fixed]:g}; leave it out")
        values = {**(_LOCKED if scenario else {}), **values}
        named = {cls.KEYS[key]: value for key, value in values.items()}
        return cls(int(count), seed=seed, scenario=scenario, **named)

    def as_dict(self) -> dict[str, int | float | str | None]:
        """Return the rules by name, for files."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def broken(self, sessions: int, overflowed: int, ended: str | None) -> list[str]:
        """Return the rules of the scenario that a run broke, one line each.

        ``overflowed`` of the ``sessions`` outgrew the context; ``ended`` says why the run ended
        before its time.
        """
        if self.scenario is None:
            return []
        lines = [ended] if ended else []
        if self.duration_s < LEAST_MEASURED_S:
            least = f"shorter than {LEAST_MEASURED_S:g} s"
            lines.append(f"the measured phase of {self.duration_s:g} s is {least}")
        if overflowed > MOST_OVERFLOWED * sessions:
            most = f"more than {100 * MOST_OVERFLOWED:g} %"
            lines.append(f"{overflowed} of {sessions} sessions outgrew the context: {most}")
        return lines


def _numbers(text: str) -> dict[str, float]:
    """Return the numbers of ``KEY=N,...``, by key."""
    numbers = {}
    for key, value in key_values(text, "--lanes", TraceError, "KEY=N").items():
        if key not in LaneRules.KEYS:
            raise TraceError(f"--lanes: unknown key {key!r}; {did_you_mean(key, LaneRules.KEYS)}")
        if not re.fullmatch(r"\d*\.?\d+", value, re.ASCII):
            raise TraceError(f"--lanes: {key} {value!r} is no number; write {FORM}")
        numbers[key] = float(value)
    return numbers
