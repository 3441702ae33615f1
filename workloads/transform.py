"""Pure changes of a trace. Each returns a new trace with a note of what was done."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import count
from math import ceil, floor, log1p, sqrt

import numpy as np

from servetwin.workloads.block_ids import Chains, Ids
from servetwin.workloads.errors import TraceError
from servetwin.workloads.fields import MAX_COUNT
from servetwin.workloads.generators.arrivals import check_not_negative, check_positive
from servetwin.workloads.generators.generate import require_short, with_arrivals
from servetwin.workloads.graphs.lane_rules import LaneRules
from servetwin.workloads.graphs.links import detach_orphans, links_of, tasks
from servetwin.workloads.request import Request
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace, as_columns


def scale_rate(trace: Trace, factor: float) -> Trace:
    """Multiply the arrival rate by ``factor``; the first arrival moves to 0.

    Delays change as the gaps do: a follower still arrives its delay after its parent.
    """
    check_positive("rate factor", factor)
    if not trace.requests:
        return trace
    start_s = trace.requests[0].arrival_s
    require_short(len(trace), (trace.requests[-1].arrival_s - start_s) / factor)
    clock_s = None if trace.clock_s is None else trace.clock_s / factor
    return replace(trace, clock_s=clock_s).changed(
        f"rate scaled by {factor:g}",
        arrival_s=(trace.column("arrival_s") - start_s) / factor,
        delay_s=[None if s is None else s / factor for s in trace.column("delay_s")],
    )


def at_rate(trace: Trace, rate_per_s: float, seed: int = 0) -> Trace:
    """Scale the trace to a mean rate of ``rate_per_s``. Raises TraceError where it has no rate.

    A trace without times gets those of a Poisson process, drawn by ``seed``.
    """
    check_positive("rate", rate_per_s)
    if not trace.timed:
        return with_arrivals(trace, rate_per_s, seed)
    if trace.lanes:
        raise TraceError("lanes wait for their answers and have no rate: give --lanes or rates")
    if not trace.rate_per_s:
        raise TraceError("a trace whose requests all arrive at once has no rate to scale")
    return scale_rate(trace, rate_per_s / trace.rate_per_s)


def scale_tokens(trace: Trace, prompt: float = 1.0, output: float = 1.0) -> Trace:
    """Multiply the tokens by ``prompt`` and ``output``, rounded, at least 1 each.

    Blocks scale with the prompt; ``ScaledPrefixes`` says which prefixes stay shared.
    """
    check_positive("prompt factor", prompt)
    check_positive("output factor", output)
    by_prompt, by_output = Fraction(repr(float(prompt))), Fraction(repr(float(output)))
    prefixes = ScaledPrefixes(by_prompt)
    requests = [_scaled_output(r, by_output) for r in trace]
    if by_prompt != 1:
        requests = [_scaled_prompt(r, by_prompt, prefixes) for r in requests]
    return trace.replaced(requests, f"prompts scaled by {prompt:g}, outputs by {output:g}")


def window(trace: Trace, start_s: float = 0.0, end_s: float = float("inf")) -> Trace:
    """Keep the requests that arrive in [start_s, end_s) of the trace's time; start_s becomes 0."""
    if not (0 <= start_s < end_s):
        raise TraceError(f"a window wants 0 <= start < end, not {start_s:g} and {end_s:g}")
    arrivals_s = trace.column("arrival_s")
    inside = (start_s <= arrivals_s) & (arrivals_s < end_s)
    kept = as_columns(trace.requests)[inside]
    rebased = kept.with_columns(arrival_s=arrivals_s[inside] - start_s)
    return _with_only(trace, rebased, f"window of {start_s:g} to {end_s:g} s")


def limit(trace: Trace, requests: int) -> Trace:
    """Keep the first ``requests`` requests."""
    if requests < 1:
        raise TraceError(f"a limit must be at least 1 request, not {requests}")
    return _with_only(trace, trace.requests[:requests], f"first {counted(requests, 'request')}")


def clip_context(trace: Trace, max_tokens: int) -> Trace:
    """Drop the requests with more than ``max_tokens`` tokens in prompt and output together."""
    if max_tokens < 1:
        raise TraceError(f"a context must be at least 1 token, not {max_tokens}")
    fitting = as_columns(trace.requests)[trace.total_tokens <= max_tokens]
    dropped = counted(len(trace) - len(fitting), "request")
    return _with_only(trace, fitting, f"{dropped} beyond {max_tokens:,} tokens dropped")


def spread_ties(trace: Trace, seed: int) -> Trace:
    """Move each arrival by a uniform offset in [0, clock_s); the order of ties stays.

    A trace without a coarse clock stays as it is, with a note.
    """
    if trace.clock_s is None:
        return trace.replaced(trace.requests, "no coarse clock: no ties to spread")
    arrivals_s = trace.column("arrival_s")
    offsets_s = np.random.default_rng(seed).uniform(0, trace.clock_s, len(trace))
    offsets_s = offsets_s[np.lexsort((offsets_s, arrivals_s))]  # ascending within each tie
    moved_s = arrivals_s + offsets_s
    moved = as_columns(trace.requests).with_columns(arrival_s=moved_s)
    note = f"ties spread over {trace.clock_s:g} s (seed {seed})"
    return replace(trace, clock_s=None).replaced(moved[np.argsort(moved_s, kind="stable")], note)


def with_estimates(trace: Trace, cv: float, seed: int) -> Trace:
    """Declare output lengths with an error: the true ones times a log-normal factor of mean 1.

    ``cv`` is the factor's coefficient of variation; 0 declares the truth.
    """
    check_not_negative("cv of the estimates", cv)
    sigma2 = log1p(cv**2)
    factors = np.random.default_rng(seed).lognormal(-sigma2 / 2, sqrt(sigma2), len(trace))
    declared = np.rint(trace.column("output_tokens") * factors).clip(1).astype(int)
    note = f"output lengths declared with an error of cv {cv:g}"
    return trace.changed(note, estimated_output_tokens=declared)


def limit_reasoning(trace: Trace, most_tokens: int) -> Trace:
    """Cut the reasoning of every answer to ``most_tokens``; what is visible of it stays.

    Raises ``TraceError`` for a negative limit, and where no request says what is reasoning.
    """
    check_not_negative("--reasoning-budget", most_tokens)
    if all(tokens is None for tokens in trace.column("reasoning_tokens")):
        raise TraceError("--reasoning-budget: no request of the trace has reasoning_tokens")
    cut = [_less_reasoning(request, most_tokens) for request in trace]
    fewer = [b.output_tokens - a.output_tokens for b, a in zip(trace, cut, strict=True)]
    where = counted(sum(map(bool, fewer)), "request")
    what = f"at most {counted(most_tokens, 'token')} of reasoning"
    return trace.replaced(cut, f"{what}: {counted(sum(fewer), 'token')} less in {where}")


def _less_reasoning(request: Request, most_tokens: int) -> Request:
    hidden = min(request.reasoning_tokens or 0, most_tokens)
    fewer = (request.reasoning_tokens or 0) - hidden
    return (
        _with_output(request, max(1, request.output_tokens - fewer), hidden) if fewer else request
    )


def in_lanes(trace: Trace, rules: LaneRules) -> Trace:
    """Return the trace as lanes replay it. Raises ``TraceError`` for one without requests."""
    trees = len({*tasks(links_of(trace)).values()})
    if not trees:
        raise TraceError(f"--lanes: {trace.source} has no request")
    note = f"{counted(trees, 'task')} replayed in {counted(rules.lanes, 'lane')}"
    if rules.lanes > trees:
        note += ": some tasks run on several lanes at a time, without a common cache"
    return replace(trace, lanes=rules, timed=True).replaced(trace.requests, note)


def _with_only(trace: Trace, requests: Sequence[Request], note: str) -> Trace:
    return trace.replaced(detach_orphans(requests), note)


def _scaled(tokens: int, factor: Fraction) -> int:
    scaled = max(1, round(tokens * factor))
    if scaled > MAX_COUNT:
        raise TraceError(
            f"{tokens} tokens, scaled by {float(factor):g}, are more than {MAX_COUNT:,}: use a "
            "smaller scale"
        )
    return scaled


def _scaled_output(request: Request, factor: Fraction) -> Request:
    output_tokens = _scaled(request.output_tokens, factor)
    reasoning = request.reasoning_tokens
    if reasoning is not None:
        reasoning = min(output_tokens, round(reasoning * factor))
    return _with_output(request, output_tokens, reasoning)


def _with_output(request: Request, output_tokens: int, reasoning: int | None) -> Request:
    ids = request.answer_block_ids if output_tokens == request.output_tokens else ()
    return replace(
        request, output_tokens=output_tokens, reasoning_tokens=reasoning, answer_block_ids=ids
    )


def _scaled_prompt(request: Request, factor: Fraction, prefixes: "ScaledPrefixes") -> Request:
    prompt_tokens = _scaled(request.prompt_tokens, factor)
    shared, block_tokens = request.shared_prefix_tokens, request.block_tokens
    if shared is not None:
        shared = min(prompt_tokens, round(shared * factor))
    if block_tokens is not None:
        block_tokens = prefixes.block_tokens(block_tokens)
    return replace(
        request,
        prompt_tokens=prompt_tokens,
        shared_prefix_tokens=shared,
        prefix_block_ids=prefixes.ids(request, prompt_tokens),
        answer_block_ids=(),
        block_tokens=block_tokens,
    )


class ScaledPrefixes:
    """Gives chained ids to scaled prompts so that sharing scales with the prompts.

    A block of b tokens becomes one of b' = max(1, round(f b)), which need not be f b. So the new
    ids are not the old ones: new block j ends at token (j + 1) b', which was token (j + 1) b' / f
    of the old prompt, and it takes its identity from j and from the old (chained) id of the block
    that holds this token, or from the last old id at the end of the prompt. Therefore:

    * requests that shared m old blocks share floor(m b f / b') new ones, as far as they are long
      enough: the last part of a block may be lost, nothing else;
    * they never share more tokens than max(1, round(m b f)).

    A prompt whose ids covered it whole has ceil(prompt' / b') new ids; one with full blocks only
    has floor of what its ids covered.
    """

    def __init__(self, factor: Fraction) -> None:
        self._factor = factor
        self._chains = Chains()
        self._new_ids = defaultdict[tuple[int, int, int], int](count().__next__)

    def block_tokens(self, block_tokens: int) -> int:
        """Return the scaled block size b', at least 1 token."""
        return max(1, round(block_tokens * self._factor))

    def ids(self, request: Request, scaled_prompt_tokens: int) -> Ids:
        """Return the ids of the request's prompt scaled to ``scaled_prompt_tokens``."""
        old_ids, old_block = request.prefix_block_ids, request.block_tokens
        if not old_ids or old_block is None:
            return ()
        new_block = self.block_tokens(old_block)
        step = new_block / (old_block * self._factor)  # old blocks per new block
        if len(old_ids) * old_block >= request.prompt_tokens:
            blocks = ceil(Fraction(scaled_prompt_tokens, new_block))
        else:
            blocks = min(floor(len(old_ids) / step), scaled_prompt_tokens // new_block)
        old = tuple(old_ids)
        return self._chains.of(
            [
                self._new_ids[old_block, old[min(end, len(old)) - 1], block]
                for block, end in enumerate(_ends(step, blocks))
            ]
        )


def _ends(step: Fraction, count: int) -> list[int]:
    """Return ceil(step), ceil(2 step), ... by integer arithmetic: a prompt may have thousands of
    blocks.
    """
    over, under = step.numerator, step.denominator
    return [-(-block * over // under) for block in range(1, count + 1)]
