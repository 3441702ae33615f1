"""What makes a table of step times doubtful, without a measurement of a server beside it.

Three checks of steps of decodes: more sequences never take less time, weights are read at no more
than the memory's bandwidth, and a format of fewer bits is not slower than bf16. Each has found
tables that were several times too slow.
"""

import math
from collections.abc import Iterator, Sequence

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.protocol import StepTime

_CONTEXT = 1024
_BATCHES = (1, 2, 4, 8, 16)
# The share by which measured kernels of one kind differ from call to call.
_NOISE = 0.08


def doubts_of(
    table: StepTime, least_s: float = 0.0, wider: Sequence[StepTime] = ()
) -> tuple[str, ...]:
    """Return what is doubtful about a table, a line each.

    ``least_s`` is the time in which one sequence's step can read its weights, ``wider`` are tables
    of the same model with one part in bf16.
    """
    times_s = {batch: _decodes_s(table, batch) for batch in _BATCHES}
    lines = [*_falls(times_s)]
    if times_s[1] < (1 - _NOISE) * least_s:
        lines.append(
            f"a step of one sequence takes {_ms(times_s[1])}, its weights alone {_ms(least_s)}"
        )
    wide_s = min((_decodes_s(one, 1) for one in wider), default=math.inf)
    if times_s[1] > (1 + _NOISE) * wide_s:
        lines.append(
            f"a step of one sequence takes {_ms(times_s[1])}, with a part in bf16 {_ms(wide_s)}"
        )
    return tuple(lines)


def _falls(times_s: dict[int, float]) -> Iterator[str]:
    """Return the first batch that takes longer than a larger one."""
    for few, few_s in times_s.items():
        many = min((n for n in times_s if n >= few), key=lambda n: times_s[n])
        if times_s[many] < (1 - _NOISE) * few_s:
            yield f"a step of {few} takes {_ms(few_s)}, of {many} {_ms(times_s[many])}"
            return


def _decodes_s(table: StepTime, batch: int) -> float:
    return float(table.seconds(BatchShape(batch, batch * (_CONTEXT + 1), batch))[0])


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
