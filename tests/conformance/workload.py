"""What both schedulers are asked, and what each says of a step. Standard library only.

It is read by the interpreter of the other server too, which has none of our packages.
"""

import json
import zlib
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. The tokens of its answer are known before: the model is a stub.

    ``arrival_step`` counts from the start, for a follower from the end of ``parent``;
    ``abort_after`` counts the steps from the arrival to the moment at which the client hangs up.
    """

    name: str
    prompt: list[int]
    answer: list[int]
    arrival_step: int
    priority: int = 0
    """The smallest goes first, as in vLLM."""
    parent: str | None = None
    abort_after: int | None = None
    n: int = 1
    """Answers, all alike."""
    stops: bool = False
    """Whether the last token says that the answer ends, before ``max_tokens`` does."""
    adapter: int = 0
    """Number of its LoRA adapter; 0: the base model."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A server's limits and its requests."""

    name: str
    blocks: int
    """Blocks of 16 tokens that requests can have."""
    max_seqs: int
    token_budget: int
    max_model_len: int
    prefix_cache: bool
    priorities: bool
    """Order of the waiting queue, and choice of the preempted: by priority, else FCFS."""
    full_prompt_gate: bool
    """A prompt is admitted when all of it fits, not only its first chunk."""
    long_prefill_tokens: int
    """Rows that a prompt gets in a step while other requests are there; 0: any number."""
    watermark: float
    chunk_prompts: bool
    repeats: bool
    """Prompts may go on from answers that are not finished."""
    decide_ahead: bool
    """Each step is decided before the tokens of the one before are known."""
    groups: str
    """What groups of layers keep, as ``kv_groups`` has it."""
    long_prefill_adaptive: bool = False
    """These rows grow to an equal share of the budget for each request that is there."""
    spare_seqs: int = 0
    """Sequences of the model runner beyond those that may run."""
    queued_tokens: int | None = None
    """Tokens of prompts without a first token from which on requests are refused."""
    draft_rows: int = 0
    """Drafted tokens that each decode verifies in a step."""
    draft_slots: int = 0
    """Positions behind its rows that a drafter fills."""
    adapter_slots: int = 0
    """LoRA adapters of running requests at most; 0: there are none."""
    requests: list[Asked] = field(default_factory=list)

    def to_json(self) -> str:
        """Return the workload on one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> "Workload":
        """Return the workload that ``to_json`` wrote."""
        values: dict[str, Any] = json.loads(line)
        requests = [Asked(**asked) for asked in values.pop("requests")]
        return cls(**values, requests=requests)


def accepted(name: str, known: int, drafts: int) -> int:
    """Return how many drafts of a pass are right: at random, and alike for both schedulers.

    ``known`` tokens of the answer were out before it.
    """
    return zlib.crc32(f"{name} {known}".encode()) % (drafts + 1)


class Step(NamedTuple):
    """What was decided in a step, and what came of it. Lists of names are sorted."""

    scheduled: dict[str, list[int]]
    """(first position, positions) by request: the first one tells what was found in the cache."""
    preempted: list[str]
    finished: list[str]
    free_blocks: int
    """Blocks that no request holds when the next step is to be decided, or none is any more."""
    number: int = 0
    """The driver's count, which goes on while nothing runs."""


class Server(Protocol):
    """A scheduler with its memory, and a model that answers at once."""

    def add(self, asked: Asked) -> None:
        """Queue a request, or refuse it."""

    def abort(self, name: str) -> None:
        """Forget a request, if it is there."""

    def step(self) -> Step | None:
        """Run one step; None where nothing could run."""

    def busy(self) -> bool:
        """Return whether a request waits or runs."""
