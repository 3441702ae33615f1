"""The settings of a server that may be stated wrongly, each with the values that are tried.

The metrics of a server say something of them too: requests that ran, tokens of its KV memory.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from servetwin.app.verdict.measured_facts import MeasuredFacts
from servetwin.policies.config import PolicyConfig, has_token_budget

# The share of the KV memory from which on its size can be told.
_LEAST_USAGE = 0.02


def most_running(facts: MeasuredFacts) -> int:
    """Return the most requests that the server said it ran at once; 1 where it said nothing."""
    most = np.nan if facts.server is None else facts.server["running"].max()
    return 1 if np.isnan(most) else max(1, int(most))


def kv_tokens(facts: MeasuredFacts) -> npt.NDArray[np.float64]:
    """Return the size of the KV memory by each reading: tokens held / share used.

    A request holds its prompt and what came out of it, from its first token to its last. A reading
    while prompts are computed tells nothing, and none does where requests share prefixes: how many
    tokens they hold is not known then.
    """
    rows, server = facts.answered, facts.server
    if server is None or any(request.prefix_block_ids for request in facts.requests):
        return np.empty(0)
    columns = ("first_token_s", "last_token_s", "prompt_tokens", "output_tokens")
    first_s, last_s, prompts, outputs = (rows[name].to_numpy(float) for name in columns)
    at_s, usage = server["at_s"].to_numpy()[:, None], server["kv_usage"].to_numpy()
    done = (at_s - first_s) / np.maximum(last_s - first_s, 1e-9)
    decodes = (done >= 0) & (done < 1)
    held = np.where(decodes, prompts + outputs * done, 0.0).sum(axis=1)
    known = (usage > _LEAST_USAGE) & (held > 0) & (decodes.sum(axis=1) == server["running"])
    return np.asarray(held[known] / usage[known])


def server_notes(facts: MeasuredFacts) -> Iterator[str]:
    """Yield a line on the load of the server, and on its KV memory, by its own metrics."""
    server = facts.server
    if server is None or server[["running", "waiting", "kv_usage"]].isna().all(axis=None):
        return
    most = server.max()
    new = server["preemptions"].max() - server["preemptions"].min()
    told = {
        "{:.0f} requests running": most["running"],
        "{:.0f} waiting": most["waiting"],
        "{:.0%} of the KV memory used": most["kv_usage"],
        "{:.0f} preemptions": new,
    }
    shown = ", ".join(text.format(value) for text, value in told.items() if not np.isnan(value))
    sizes = kv_tokens(facts)
    size = f"; by the tokens it held it has {np.median(sizes):,.0f} KV tokens" if len(sizes) else ""
    yield f"the server's own metrics: at most {shown}{size}"


Value = float | int | str | bool

BATCHINGS = ("static", "insertion", "continuous", "chunked", "prefill-first", "unified")
# Hypotheses on step times, and whether they change steps without prompts, and with them.
STEP_TIMES = {
    "step times": (True, True),
    "step times of decodes": (True, False),
    "step times of prompts": (False, True),
}
_POINTS = 7
_SCALES = (1.081, 2.0)


@dataclass(frozen=True, slots=True)
class Server:
    """A server as a hypothesis has it.

    ``scale`` has factors on the steps without prompts and on those with them, ``request_s`` is the
    time of the API before the scheduler (None: as the profile states).
    """

    policies: PolicyConfig
    scale: tuple[float, float] = (1.0, 1.0)
    request_s: float | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting, its stated value, and the values to try first.

    ``change`` returns the server with another value, or raises ``PolicyError``. A value that
    differs by a share of less than ``least_change``, once ``offset`` is added, is as stated.
    """

    name: str
    stated: Value
    values: Sequence[Value]
    change: Callable[[Any], Server]
    least_change: float = 0.1
    offset: float = 0.0

    def differs(self, value: Value) -> bool:
        """Return whether a value is not the stated one, nor as good as that."""
        if isinstance(value, str | bool) or isinstance(self.stated, str | bool):
            return value != self.stated
        ratio = (value + self.offset) / (self.stated + self.offset)
        return abs(math.log(ratio)) >= math.log1p(self.least_change)

    def between(self, tried: Sequence[Any], best: Any) -> list[Value]:
        """Return the values to try next: between the best and its neighbours; none for names."""
        if isinstance(best, str | bool):
            return []
        place = sorted(tried).index(best)
        ends = sorted(tried)[max(0, place - 1) : place + 2]
        points = [best * (end / best) ** share for end in ends for share in (1 / 3, 2 / 3)]
        return [round(point) for point in points] if isinstance(best, int) else points


def settings_of(facts: MeasuredFacts, stated: Server, request_s: float) -> Iterator[Setting]:
    """Yield the settings that may explain what was measured; ``request_s`` is the stated API time.

    The steps of a log, or the server's metrics, bound the batch from below; a log its rows too.
    """
    policies, rows, steps = stated.policies, facts.answered, facts.steps or ()
    longest = max(request.total_tokens for request in facts.requests)
    in_flight = max(2, *(((rows["sent_s"] <= at) & (rows["last_token_s"] > at)).sum()
                         for at in rows["sent_s"]))  # fmt: skip

    def policy(name: str, setting: str, values: Sequence[Value]) -> Setting:
        def change(value: Any) -> Server:
            return replace(stated, policies=policies.changed(**{setting: value}))

        return Setting(name, getattr(policies, setting), values, change)

    has_regions = policies.kv == "contiguous" and policies.reservation == "max"
    region = policies.max_model_len if has_regions else longest
    yield policy("KV tokens", "kv_tokens", _grid(region, region * in_flight))
    if has_token_budget(policies.batching):
        least = max((step.shape().rows for step in steps), default=policies.max_seqs)
        yield policy("token budget", "token_budget", _grid(least, longest + policies.max_seqs))
    least = max((len(step.entries) for step in steps), default=most_running(facts))
    yield policy("sequences", "max_seqs", _grid(least, in_flight))
    yield policy("batching", "batching", BATCHINGS)
    if policies.kv == "paged" and any(request.prefix_block_ids for request in facts.requests):
        yield policy("prefix cache", "prefix_cache", (True, False))
    longer = np.geomspace(*_SCALES, _POINTS).tolist()
    scales = [*longer, *(1 / scale for scale in longer)]
    for name, (without, with_prompts) in STEP_TIMES.items():

        def scaled(factor: float, exponents: tuple[int, int] = (without, with_prompts)) -> Server:
            return replace(stated, scale=(factor ** exponents[0], factor ** exponents[1]))

        yield Setting(name, 1.0, scales, scaled, 0.08)
    ttft_s = float(rows["ttft_s"].median())
    seconds = np.geomspace(ttft_s / 200, ttft_s, _POINTS).tolist()
    yield Setting(
        "API time", request_s, seconds, lambda s: replace(stated, request_s=s), 0.05, ttft_s
    )


def _grid(low: int, high: int) -> list[int]:
    points = np.geomspace(low, max(low, high), _POINTS)
    return sorted({round(float(point)) for point in points})
