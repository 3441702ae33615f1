"""The rules of lanes: how many there are, and how they replay sessions."""

from dataclasses import dataclass
from math import inf
from typing import Any

from servetwin.workloads.errors import TraceError

# What AgentX fixes (AIPerf, ``docs/benchmark-modes/semianalysis-agentx-faq.md``).
AGENTX: dict[str, Any] = {"scenario": "agentx", "idle_s": 10.0, "first_from": 0.0, "first_to": 1.0}
# A shorter measured phase breaks the rules of AgentX.
LEAST_MEASURED_S = 900.0
# Lanes draw trees for as long as they are told to, and the requests of a week fill a memory.
MOST_MEASURED_S = 604_800.0
# A larger share of sessions that outgrow the context breaks them too.
MOST_OVERFLOWED = 0.01


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

    def __post_init__(self) -> None:
        if self.lanes < 1:
            raise TraceError(f"--lanes {self.lanes}: must be 1 or more")
        if not 0 <= self.first_from <= self.first_to <= 1:
            raise TraceError(
                f"--lanes: first sessions begin from {self.first_from:g} to {self.first_to:g} of "
                "their time, and shares are 0 <= from <= to <= 1"
            )
        longest_s = inf if self.users else MOST_MEASURED_S
        if not self.idle_s >= 0 or not 0 < self.duration_s <= longest_s:
            raise TraceError(
                "--lanes: idle must be 0 s or more, duration above 0 s and at most "
                f"{MOST_MEASURED_S:,.0f} s (a week)"
            )

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
