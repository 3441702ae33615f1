"""The bursts of a calibration round: lone prompts, shrinking batches, prompts that join decodes."""

from collections.abc import Iterator
from math import ceil

from servetwin.app.calibration.black_box.burst_sender import BurstRequest, BurstSender
from servetwin.app.calibration.black_box.experiments import LADDER, LONE_OUTPUTS, SMALL_PROMPT
from servetwin.app.calibration.black_box.identified_limits import IdentifiedLimits

MOST_AT_ONCE = 64
JOINING = (24, 60, 120, 240, 480)
LEAST_OUTPUTS = 6
_SHARE = 0.15
"""No burst may take more of the time left."""


def bursts(sender: BurstSender, limits: IdentifiedLimits) -> Iterator[list[BurstRequest]]:
    """Yield the bursts of one round, each planned with the times that earlier ones took."""
    size = _most_at_once(sender, limits)
    yield from _lone(sender, limits)
    if limits.identified.get("batching") == "static":
        yield from _equal(sender, limits, size)
        return
    yield _shrinking(sender, limits, size, SMALL_PROMPT)
    for runners in sorted({1, size // 2, size - 1} - {0}):
        yield _joined(sender, limits, runners)
    if long := _long_prompt(sender, limits, size):
        yield _shrinking(sender, limits, size, long)


def _most_at_once(sender: BurstSender, limits: IdentifiedLimits) -> int:
    seen = int(limits.identified.get("max_seqs") or MOST_AT_ONCE)
    return max(1, min(seen, MOST_AT_ONCE, sender.allowance.max_requests // 10))


def _lone(sender: BurstSender, limits: IdentifiedLimits) -> Iterator[list[BurstRequest]]:
    """A prompt of every size, each a little different in every round."""
    top = limits.longest - LONE_OUTPUTS
    for size in (*LADDER, top):
        prompt = min(top, max(1, round(size * sender.rng.uniform(0.7, 1.0))))
        if size <= top and sender.ttft_s(prompt) < _SHARE / 2 * sender.allowance.left_s:
            yield [BurstRequest(prompt, LONE_OUTPUTS)]


def _shrinking(
    sender: BurstSender, limits: IdentifiedLimits, size: int, prompt: int
) -> list[BurstRequest]:
    """A batch in which one request after the other ends: every number of decodes is seen."""
    room = limits.longest - prompt
    filling = ceil(size * prompt / limits.identified.get("token_budget", size * prompt))
    lengths = (LEAST_OUTPUTS + filling + 2 * i for i in range(size))
    prompts = sender.rng.integers(max(1, prompt // 2), prompt + 1, size=size).tolist()
    return [BurstRequest(p, max(2, min(room, n))) for p, n in zip(prompts, lengths, strict=True)]


def _long_prompt(sender: BurstSender, limits: IdentifiedLimits, size: int) -> int:
    """As long as a batch of them may be: for long contexts in full batches."""
    prompt = limits.longest // 2
    while prompt > 2 * SMALL_PROMPT:
        if size * sender.ttft_s(prompt) < _SHARE * sender.allowance.left_s:
            return prompt
        prompt //= 2
    return 0


def _joined(sender: BurstSender, limits: IdentifiedLimits, runners: int) -> list[BurstRequest]:
    """Prompts of all sizes, one at a time, into a batch that decodes."""
    itl_s = sender.itl_s(runners)
    at_s = 2 * sender.ttft_s(SMALL_PROMPT * runners) + 3 * itl_s
    newcomers = []
    longest = limits.longest - 3
    for size in (*JOINING, longest):
        prompt = min(longest, round(size * sender.rng.uniform(0.7, 1.0)))
        if size <= longest and sender.ttft_s(prompt) < _SHARE / 4 * sender.allowance.left_s:
            newcomers.append(BurstRequest(max(1, prompt), 3, at_s))
            at_s += 1.5 * sender.ttft_s(prompt) + 5 * itl_s
    outputs = max(2, min(ceil(at_s / itl_s), limits.longest - SMALL_PROMPT))
    return [*[BurstRequest(SMALL_PROMPT, outputs)] * runners, *newcomers]


def _equal(
    sender: BurstSender, limits: IdentifiedLimits, size: int
) -> Iterator[list[BurstRequest]]:
    """Batches of equal requests: a static batch holds no row beyond the end of its request."""
    sizes = sorted({n for n in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if n < size} | {size})
    for prompt in (SMALL_PROMPT, _long_prompt(sender, limits, size)):
        for n in sizes if prompt else ():
            yield [BurstRequest(prompt, min(8, limits.longest - prompt))] * n
