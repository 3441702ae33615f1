"""Experiments that identify a server's policies and limits by the order of its tokens.

Each raises ``ProbeStopped`` with a reason when it finds nothing out; the caller notes it.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil
from typing import NamedTuple

import numpy as np

from servetwin.app.calibration.black_box.identified_limits import IdentifiedLimits
from servetwin.app.calibration.black_box.sender import (
    BurstRequest,
    BurstSender,
    ProbeStopped,
    RequestRejected,
)
from servetwin.policies.build import build_scheduler
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.black_box_steps import ObservedRequest, ObservedStep, observed_steps
from servetwin.sim.step_times.step_time import StepTime
from servetwin.workloads.request import Request

LADDER = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
LONE_OUTPUTS = 8
SMALL_PROMPT = 16
BISECTIONS = 6
# No lone prompt may take more of the time left.
_LONE_SHARE = 0.05
# Of the length at which a limit on the number of requests would look like one on tokens.
_KV_SHARE = 0.97
_OVERLAP = 0.7


def find_context(sender: BurstSender, limits: IdentifiedLimits) -> None:
    """Send lone prompts, ever longer, to the server's limit or as far as the time allows."""
    limit = limits.longest if "max_model_len" in limits.identified else None
    taken = 0
    for prompt in _ladder(limit):
        if sender.ttft_s(prompt) > _LONE_SHARE * sender.allowance.left_s and taken:
            break
        try:
            sender.send([BurstRequest(prompt, LONE_OUTPUTS)])
        except RequestRejected as refusal:
            taken, refused = _bisect(sender, taken, prompt)
            limits.longest = taken + LONE_OUTPUTS
            limits.found(max_model_len=limits.longest)
            limits.notes.append(f"prompts of {refused} tokens are rejected ({refusal})")
            return
        taken = prompt
        limits.longest = max(limits.longest, taken + LONE_OUTPUTS)
    sender.itl_s(1)  # or say that it does not stream
    if limit is None:
        limits.unknown(f"{taken} tokens were taken; longer was not tried", "max_model_len")


def _ladder(limit: int | None) -> list[int]:
    if limit is None:
        return list(LADDER)
    top = limit - LONE_OUTPUTS
    if top < 1:
        raise ProbeStopped(f"its context of {limit} tokens has no room for a prompt", final=True)
    return [*(prompt for prompt in LADDER if prompt < top), top]


def _bisect(sender: BurstSender, taken: int, refused: int) -> tuple[int, int]:
    """Narrow the longest prompt taken and the shortest refused, both in tokens."""
    for _ in range(BISECTIONS):
        middle = (taken + refused) // 2
        if middle in (taken, refused):
            break
        try:
            sender.send([BurstRequest(middle, LONE_OUTPUTS)])
            taken = middle
        except RequestRejected:
            refused = middle
    if not taken:
        raise ProbeStopped("it rejects even the shortest prompt", final=True)
    return taken, refused


def find_batching(sender: BurstSender, limits: IdentifiedLimits) -> None:
    """Send newcomers beside a runner: they wait for its end, pause it, or share its steps."""
    itl_s = sender.itl_s(1)
    first_s = sender.ttft_s(SMALL_PROMPT) + 4 * itl_s
    every_s = sender.ttft_s(64) + 6 * itl_s
    prompt = min(64, limits.longest - 2)
    newcomers = [BurstRequest(prompt, 2, first_s + j * every_s) for j in range(3)]
    outputs = _bounded(ceil((first_s + 3 * every_s) / itl_s) + 8, limits)
    answers = sender.send([BurstRequest(SMALL_PROMPT, outputs), *newcomers])
    runner, *others = answers
    if all(other.stamps_s[0] > runner.stamps_s[-1] for other in others):
        _static_or_single(sender, limits)
        return
    steps = observed_steps(answers)
    joined = [step for step in steps if step.newcomers - {0}]
    shared = sum(0 in step.stamps_s for step in joined)
    limits.found(batching="continuous" if 2 * shared > len(joined) else "prefill-first")


def _static_or_single(sender: BurstSender, limits: IdentifiedLimits) -> None:
    answers = sender.send([BurstRequest(SMALL_PROMPT, 12)] * 4)
    if max(len(step.stamps_s) for step in observed_steps(answers)) > 1:
        limits.found(batching="static")
        limits.unknown("the steps of a static batch have none", "token_budget")
    else:
        limits.found(batching="continuous", max_seqs=1)


def find_budget(sender: BurstSender, limits: IdentifiedLimits) -> None:
    """Send long prompts beside two decodes, and count the steps that carry each prompt."""
    if limits.identified.get("batching") != "continuous":
        raise ProbeStopped("decodes do not share steps with prompts here: pieces cannot be seen")
    if limits.identified.get("max_seqs") == 1:
        raise ProbeStopped("one request at a time: there are no decodes to count steps by")
    seconds = _LONE_SHARE * sender.allowance.left_s
    longest = _affordable(sender, limits.longest - 2, seconds)
    low, high = 1.0, float("inf")
    for share in (1.0, 0.8, 0.64):
        prompt = max(2, int(share * longest))
        pieces, runners = _pieces(sender, limits, prompt)
        if pieces == 1:
            why = f"a prompt of {prompt} tokens took one step beside {runners} decodes"
            raise ProbeStopped(f"{why}: the budget is {prompt + runners} or more")
        bounds = prompt / pieces + runners, prompt / (pieces - 1) + runners
        if max(low, bounds[0]) >= min(high, bounds[1]):
            raise ProbeStopped(
                f"prompts contradict each other: the budget lies between {low:.0f} and {high:.0f}, "
                f"and between {bounds[0]:.0f} and {bounds[1]:.0f}"
            )
        low, high = max(low, bounds[0]), min(high, bounds[1])
    limits.found(token_budget=roundest(low, high))
    limits.notes.append(f"token_budget lies between {ceil(low)} and {ceil(high) - 1}")


def _pieces(sender: BurstSender, limits: IdentifiedLimits, prompt: int) -> tuple[int, int]:
    """Return the steps with a piece of a newcomer's prompt, and the decodes beside it."""
    runners = 1 if limits.identified.get("max_seqs") == 2 else 2
    itl_s, took_s = sender.itl_s(runners), sender.ttft_s(prompt)
    at_s = sender.ttft_s(2 * SMALL_PROMPT) + 6 * itl_s
    outputs = _bounded(ceil((at_s + 2 * took_s) / itl_s) + 8, limits)
    runner = BurstRequest(SMALL_PROMPT, outputs)
    answers = sender.send([*[runner] * runners, BurstRequest(prompt, 2, at_s)])
    steps = observed_steps(answers)
    last = next(k for k, step in enumerate(steps) if runners in step.newcomers)
    if len(steps[last].decoders) < runners:
        raise ProbeStopped("the decodes ended before the long prompt had its first token")
    return _carrying(steps, last, answers[runners]), runners


def _carrying(steps: Sequence[ObservedStep], last: int, newcomer: ObservedRequest) -> int:
    """Count the steps up to ``last`` that began after the send.

    The first counts only if it took as long as one with a piece of a prompt.
    """
    ends_s = [step.end_s for step in steps]
    took_s = [end - before for before, end in pairwise(ends_s)]
    first = next(k for k in range(1, last + 1) if k == last or ends_s[k - 1] >= newcomer.sent_s)
    usual_s = float(np.median(took_s[max(0, first - 5) : max(1, first - 1)]))
    carrying = took_s[first - 1 : last]
    if len(carrying) > 1 and carrying[0] < usual_s + 0.3 * (max(carrying[1:]) - usual_s):
        return len(carrying) - 1
    return len(carrying)


def roundest(low: float, high: float) -> int:
    """Return the roundest whole number in [low, high): people choose powers of two or multiples."""
    for unit in (2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1):
        powers = [p for p in (1 << k for k in range(24)) if low <= p < high]
        if powers:
            return powers[-1]
        multiple = ceil(low / unit) * unit
        if low <= multiple < high:
            return multiple
    return ceil(low)


def find_filling(sender: BurstSender, limits: IdentifiedLimits) -> None:
    """Send four prompts of 0.6 budgets at once: two end in one step if it is filled with parts."""
    if limits.identified.get("batching") != "continuous":
        return
    budget = limits.identified.get("token_budget")
    if budget is None:
        limits.notes.append("no step was ever full: whether prompts are cut to fill it is open")
        return
    prompt = min(int(0.6 * budget), limits.longest - 2)
    itl_s = sender.itl_s(1)
    at_s = sender.ttft_s(SMALL_PROMPT) + 4 * itl_s
    outputs = _bounded(ceil((at_s + 6 * sender.ttft_s(prompt)) / itl_s) + 8, limits)
    answers = sender.send(
        [BurstRequest(SMALL_PROMPT, outputs), *[BurstRequest(prompt, 2, at_s)] * 4]
    )
    together = any(len(step.newcomers - {0}) > 1 for step in observed_steps(answers))
    limits.found(batching="chunked" if together else "continuous")


def find_max_seqs(sender: BurstSender, limits: IdentifiedLimits) -> None:
    """Send more and more small requests at once, until some wait for others to end."""
    if "max_seqs" in limits.identified:
        return
    size, ran = 32, 0
    while size <= max(32, sender.allowance.left_requests // 4):
        outputs = _bounded(32 + size, limits)
        slower = 2 if ran else 1  # than the last batch, which was half as large
        seconds = slower * outputs * sender.itl_s(size)
        if seconds > 0.25 * (left_s := sender.allowance.left_s):
            took = f"{size} requests at once would take about {seconds:.0f} s"
            raise ProbeStopped(f"{took}; {left_s:.0f} s of the time limit are left")
        burst = [BurstRequest(8, outputs)] * size
        answers = sender.send(burst)
        ran = at_once(answers)
        if ran < size and waited_for_others(answers):
            if (again := at_once(sender.send(burst))) == ran:
                limits.found(max_seqs=ran)
            else:
                limits.unknown(f"{ran} of {size} requests ran at once, then {again}", "max_seqs")
            return
        size *= 2
    limits.unknown(f"{ran} requests ran at once and none waited", "max_seqs")


def at_once(answers: Sequence[ObservedRequest]) -> int:
    """Return the most requests that were between their first and last token at one time."""
    begins = [(a.stamps_s[0], 1) for a in answers if a.stamps_s]
    ends = [(a.stamps_s[-1], -1) for a in answers if a.stamps_s]
    return int(np.cumsum([change for _, change in sorted(begins + ends)]).max(initial=0))


def waited_for_others(answers: Sequence[ObservedRequest]) -> bool:
    """Whether a request that was sent before the first answer ended began only after that."""
    first_end_s = min(a.stamps_s[-1] for a in answers)
    return any(a.sent_s < first_end_s < a.stamps_s[0] for a in answers)


def find_prefix_cache(sender: BurstSender, limits: IdentifiedLimits) -> None:
    """Send the same prompt twice: with a prefix cache, the second first token comes sooner."""
    prompt = _affordable(sender, limits.longest - 2, 2.0)
    ratios, cached_tokens = [], 0
    for _ in range(3):
        prefix = int(sender.rng.integers(1 << 62))
        again_s = 2 * sender.ttft_s(prompt) + 8 * sender.itl_s(1) + 0.2
        twice = [BurstRequest(prompt, 2, at_s, prefix) for at_s in (0.0, again_s)]
        first, second = sender.send(twice, keep=False)
        ratios.append(second.ttft_s / first.ttft_s)
        cached_tokens = max(cached_tokens, second.cached_tokens)
    ratio = float(np.median(ratios))
    times = f"the second of two equal prompts of {prompt} tokens took {ratio:.2f} times as long"
    if cached_tokens or ratio < 0.7:
        limits.found(prefix_cache=True)
        reported = f"{cached_tokens} of them" if cached_tokens else "no count"
        limits.notes.append(f"{times}; the server reports {reported} as found in its cache")
    elif ratio > 0.85:
        limits.found(prefix_cache=False)
    else:
        raise ProbeStopped(f"{times}: neither as long nor clearly shorter")


def _affordable(sender: BurstSender, longest: int, seconds: float) -> int:
    """Return the longest prompt, halving from ``longest``, that takes at most ``seconds`` alone."""
    prompt = longest
    while prompt > 64 and sender.ttft_s(prompt) > seconds:
        prompt //= 2
    return max(1, prompt)


def find_kv_tokens(sender: BurstSender, limits: IdentifiedLimits, step_time: StepTime) -> None:
    """Send long requests at once: if memory binds, fewer run than in a simulation without limit.

    A limit is identified only if bursts of other lengths show it too, and no burst held more.
    """
    if "max_seqs" not in limits.identified:
        raise ProbeStopped("without a known max_seqs, a memory limit looks the same")
    size = limits.policies().max_seqs
    if size < 2:
        raise ProbeStopped("one request at a time: memory never binds before the context does")
    whole = _filling(sender, limits, step_time, size)
    first = _kv_bounds(sender, whole)
    if first.high is None:
        why = f"{size} requests held {first.low} tokens at once and none waited for memory"
        if whole[0].total_tokens >= limits.longest - 1:
            why += ": it never binds before max_seqs does"
        raise ProbeStopped(why)
    share = _KV_SHARE * first.ran / (first.ran + 1)
    shorter = [replace(r, prompt_tokens=int(share * r.prompt_tokens)) for r in whole]
    bounds = (first, _kv_bounds(sender, shorter), _kv_bounds(sender, whole))
    low = max(one.low for one in bounds)
    high = min(one.high for one in bounds if one.high is not None)
    most = max(most_held(answers) for round_ in sender.rounds for answers in round_)
    if max(low, most) >= high or bounds[-1].high is None:
        ranges = ", ".join(map(str, bounds))
        raise ProbeStopped(f"bursts contradict each other: it is {ranges}, and {most} were held")
    limits.found(kv_tokens=low)
    limits.notes.append(f"kv_tokens lies between {low} and {high - 1}, in {len(bounds)} bursts")


class _KVBounds(NamedTuple):
    """How many requests of a burst ran at once, the tokens they held, and one request more.

    ``high`` is None where no request waited.
    """

    ran: int
    low: int
    high: int | None

    def __str__(self) -> str:
        return f"{self.low} or more" if self.high is None else f"{self.low} to {self.high}"


def _kv_bounds(sender: BurstSender, requests: Sequence[Request]) -> _KVBounds:
    """Send equal requests at once and return the bounds of the memory that they show."""
    answers = sender.send([BurstRequest(r.prompt_tokens, r.output_tokens) for r in requests])
    ran, held = at_once(answers), most_held(answers)
    above = held + max(answer.prompt_tokens for answer in answers) + 1
    return _KVBounds(ran, held, above if ran < len(requests) else None)


def _filling(
    sender: BurstSender, limits: IdentifiedLimits, step_time: StepTime, size: int
) -> list[Request]:
    """Return equal requests, as long as the time allows, that all run at once in free memory.

    They would even with ``_OVERLAP`` of their answers, so that a slow start looks like no limit.
    """
    for share in (1.0, 0.5, 0.25, 0.125):
        total = int(share * limits.longest)
        for outputs in (16, 64, 256, 1024):
            if 2 * outputs > total:
                break
            shorter = _equal(size, total - outputs, int(_OVERLAP * outputs))
            if _expected(shorter, limits, step_time)[0] == size:
                requests = _equal(size, total - outputs, outputs)
                _, seconds = _expected(requests, limits, step_time)
                if seconds < 0.35 * sender.allowance.left_s:
                    return requests
                break
    raise ProbeStopped(f"filling the memory with {size} long requests would take too long")


def _equal(size: int, prompt_tokens: int, output_tokens: int) -> list[Request]:
    return [Request(str(i), 0.0, prompt_tokens, output_tokens) for i in range(size)]


def _expected(
    requests: list[Request], limits: IdentifiedLimits, step_time: StepTime
) -> tuple[int, float]:
    """Return how many run at once where memory never binds, and how long all take in seconds."""
    policies = limits.policies()
    kv_tokens = policies.max_seqs * (policies.max_model_len + 16)
    scheduler = build_scheduler(replace(policies, kv_tokens=kv_tokens))
    run = simulate(requests, scheduler, step_time).requests
    spans = zip(run["first_token_s"], run["last_token_s"], strict=True)
    answers = [ObservedRequest(0.0, 0, (first, last)) for first, last in spans]
    return at_once(answers), float(run["last_token_s"].max())


def most_held(answers: Sequence[ObservedRequest]) -> int:
    """Return the most tokens of prompts and answers that running requests held at one time."""
    changes = []
    for answer in answers:
        first_s, *later_s = answer.stamps_s
        changes.append((first_s, answer.prompt_tokens))
        changes += [(stamp_s, 1) for stamp_s in later_s]
        changes.append((answer.stamps_s[-1], -(answer.prompt_tokens + len(later_s))))
    return int(np.cumsum([change for _, change in sorted(changes)]).max(initial=0))


def _bounded(outputs: int, limits: IdentifiedLimits) -> int:
    """Return the output tokens that a small prompt may have."""
    return max(2, min(outputs, limits.longest - 2 * SMALL_PROMPT))
