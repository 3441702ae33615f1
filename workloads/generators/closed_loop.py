"""Closed-loop users: each sends its next request some time after the answer to its last."""

from dataclasses import dataclass

from workloads.errors import TraceError
from workloads.generators.generate import FOLLOWERS_NOTE, SOURCE, prefix_ids, random_streams
from workloads.generators.lengths import LengthDistribution
from workloads.generators.pauses import PauseDistribution
from workloads.generators.prefixes import PrefixStructure
from workloads.request import Request
from workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class ClosedLoopSpec:
    """``users`` that each think, send a request, wait for the answer and think again, several
    times.
    """

    users: int
    requests_each: int
    lengths: LengthDistribution
    think: PauseDistribution
    prefixes: PrefixStructure | None = None

    def __post_init__(self) -> None:
        if self.users < 1 or self.requests_each < 1:
            given = f"{self.users} with {self.requests_each}"
            raise TraceError(f"a closed loop wants at least 1 user with 1 request, not {given}")


def generate_closed_loop(spec: ClosedLoopSpec, seed: int) -> Trace:
    """Generate the trace of a specification; the same seed gives the same trace.

    A user is a ``tenant``; its first request arrives after its first think time, every other one
    has the one before as ``parent_id`` and the think time as ``delay_s``. Think times, lengths and
    prefixes each have their own random stream. Raises TraceError for a negative seed.
    """
    think_rng, lengths_rng, prefixes_rng = random_streams(seed, 3)
    total = spec.users * spec.requests_each
    thinks_s = spec.think.sample(total, think_rng).round(6)
    prompts, outputs = spec.lengths.sample(total, lengths_rng)
    ids, block_tokens = prefix_ids(spec.prefixes, prompts, prefixes_rng)
    drawn = zip(thinks_s.tolist(), prompts.tolist(), outputs.tolist(), ids, strict=True)
    requests = []
    for user in range(1, spec.users + 1):
        arrival_s, parent_id = 0.0, None
        for number in range(1, spec.requests_each + 1):
            think_s, prompt_tokens, output_tokens, block_ids = next(drawn)
            arrival_s = round(arrival_s + think_s, 6)
            request = Request(
                f"{SOURCE}:{user}.{number}",
                arrival_s,
                prompt_tokens,
                output_tokens,
                block_ids,
                block_tokens,
                parent_id=parent_id,
                delay_s=think_s if parent_id else None,
                tenant=f"user-{user}",
            )
            requests.append(request)
            parent_id = request.request_id
    requests.sort(key=lambda request: request.arrival_s)
    return Trace(tuple(requests), SOURCE, notes=(f"{spec}, seed {seed}", FOLLOWERS_NOTE))
