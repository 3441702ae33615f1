"""A request inside the server: what it asks, how far it is computed, what memory it holds."""

from collections.abc import Sequence as Listed
from math import inf

from servetwin.policies.kv.held import Held
from servetwin.workloads.native_class import mypyc_attr

# Chained keys of blocks: equal ones mean equal prompts up to and including the block.
Keys = Listed[int]
# Key of the unit that names a block, and the place of the block.
BlockKey = tuple[int, int]
# Below every id of a trace.
_FIRST_OWN_KEY = -(1 << 64)


@mypyc_attr(allow_interpreted_subclasses=True)
class DecodeGroup:
    """Decodes that advance together, as a member sees them (``policies.lockstep.Lockstep``).

    ``steps`` counts the steps so far, up to ``granted_step`` there is KV memory, ``stopped``
    collects members that an engine ends early.
    """

    __slots__ = ("granted_step", "steps", "stopped")

    def __init__(self) -> None:
        self.steps = 0
        self.granted_step = 0
        self.stopped: list[Sequence] = []

    def advanced(self, seq: "Sequence") -> int:
        """Return the tokens of a member since it joined."""
        return self.steps - seq.joined_step

    def granted_tokens(self, seq: "Sequence") -> int:
        """Return the positions for which a member has KV memory, where the group takes it."""
        return seq.computed_tokens + max(0, self.granted_step - self.steps)


def output_id(request_id: str, sample: int) -> str:
    """Return the name of one of several answers to a prompt; the first has the request's."""
    return f"{request_id}#{sample}" if sample else request_id


class Siblings:
    """The answers to one prompt: the sequence that computed it, and how many have not ended."""

    __slots__ = ("first", "left")

    def __init__(self, first: "Sequence") -> None:
        self.first = first
        self.left = first.samples


def ended_requests(ended: "list[Sequence]") -> "list[Sequence]":
    """Return the requests that end with these sequences: of several answers, the first stands."""
    requests = []
    for seq in ended:
        siblings = seq.siblings
        if siblings is None:
            requests.append(seq)
            continue
        siblings.left -= 1
        if not siblings.left:
            requests.append(siblings.first)
    return requests


class Sequence:
    """One request as a policy sees it: what it asks, and its state. It never holds the true length.

    ``computed_tokens`` (positions whose keys and values are in KV memory) catches up with
    ``total_tokens``; when a step brings it level, that step yields the next token. Prefill,
    chunked prefill, decode and recompute after preemption are the same movement. While a sequence
    decodes in a ``Lockstep``, its counters are differences of the group's step counter, so that a
    step costs nothing per member.

    ``number`` is the row of the request in a run, ``samples`` how many answers it wants, each a
    sequence of its own once the prompt is computed. ``estimated_tokens`` is the declared estimate
    of the output (by default ``max_tokens``), ``deadline_s`` when the first token is due.
    ``block_keys`` names the prompt's prefix, one chained key per ``key_blocks`` KV blocks
    (``policies.block_keys``); with ``names_answer`` it goes on into the answer, for prompts that
    repeat it.

    What memories note about it is in ``held``. An executor finds its positions by ``blocks``, the
    block table in the order of positions, as far as it was needed (paged memory), and by
    ``states``, the tables of the groups of layers that keep a state (grouped memory); or from
    ``region_start`` on, its first token slot, -1 while it holds none (contiguous memory).
    """

    __slots__ = (
        "adapter", "admission_number", "arrival_number", "arrival_s", "base_computed_tokens",
        "base_generated_tokens", "block_keys", "blocks", "cached_tokens", "deadline_s",
        "ended_samples", "estimated_tokens", "held", "join", "joined_step", "key_blocks",
        "lockstep", "max_tokens", "names_answer", "number", "output_id", "preemptions", "priority",
        "prompt_tokens", "region_start", "request_id", "samples", "siblings", "states", "stopped",
        "tenant",
    )  # fmt: skip

    def __init__(
        self, request_id: str, arrival_s: float, prompt_tokens: int, max_tokens: int,
        block_keys: Keys = (), priority: int = 0, number: int = 0, samples: int = 1,
        tenant: str | None = None, estimated_tokens: int | None = None, deadline_s: float = inf,
        key_blocks: int = 1, names_answer: bool = False,
    ) -> None:  # fmt: skip
        self.request_id = self.output_id = request_id
        self.arrival_s = arrival_s
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.block_keys = block_keys
        self.priority = priority
        self.number = number
        self.samples = samples
        self.tenant = tenant
        self.estimated_tokens = max_tokens if estimated_tokens is None else estimated_tokens
        self.deadline_s = deadline_s
        self.key_blocks = key_blocks
        self.names_answer = names_answer
        # The LoRA adapter that it asks for; None: the base model alone.
        self.adapter: str | None = None
        self.held = Held()
        self.blocks: list[int] = []
        self.region_start = -1
        self.states: list[list[int]] = []
        self.base_computed_tokens = 0
        # Both counters as they were when it joined its lockstep group; the truth outside one.
        self.base_generated_tokens = 0
        self.lockstep: DecodeGroup | None = None
        self.join = self.joined_step = 0
        # Prompt tokens found in the prefix cache at the first admission.
        self.cached_tokens = 0
        self.preemptions = 0
        # Ended before ``max_tokens`` (end of sequence, stop); set by ``stop``.
        self.stopped = False
        # Place in the scheduler's order of arrival.
        self.arrival_number = 0
        # Place in the scheduler's order of the last admissions.
        self.admission_number = 0
        # The answers to its prompt, where there are several.
        self.siblings: Siblings | None = None
        # The other samples that end with their first token, as an engine says before they begin.
        self.ended_samples: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return (
            f"Sequence({self.request_id!r}, {self.computed_tokens} of {self.prompt_tokens}"
            f"+{self.generated_tokens} tokens computed)"
        )

    @property
    def computed_tokens(self) -> int:
        """Positions whose keys and values are in KV memory."""
        group = self.lockstep
        if group is None:
            return self.base_computed_tokens
        return self.base_computed_tokens + group.advanced(self)

    @property
    def generated_tokens(self) -> int:
        """Output tokens so far; negative where ``shorten_prompt`` left more to generate."""
        group = self.lockstep
        if group is None:
            return self.base_generated_tokens
        return self.base_generated_tokens + group.advanced(self)

    @property
    def total_tokens(self) -> int:
        """Prompt and generated tokens."""
        return self.prompt_tokens + self.generated_tokens

    @property
    def missing_tokens(self) -> int:
        """Positions that a sequence outside a lockstep group has not computed."""
        return self.prompt_tokens + self.base_generated_tokens - self.base_computed_tokens

    @property
    def final_kv_tokens(self) -> int:
        """KV positions held at the end: the last generated token is never fed back."""
        return self.prompt_tokens + self.max_tokens - 1

    @property
    def own_key(self) -> int:
        """Return the key of the blocks that only this request can ask for again."""
        return _FIRST_OWN_KEY - self.arrival_number

    @property
    def finished(self) -> bool:
        """Whether the last token is out."""
        generated = self.base_generated_tokens
        if self.lockstep is not None:
            generated += self.lockstep.advanced(self)
        return self.stopped or generated >= self.max_tokens

    def key_of_block(self, place: int) -> BlockKey | None:
        """Return the key of the prompt's block at ``place``; None where no key names it."""
        unit, keys = place // self.key_blocks, self.block_keys
        return (keys[unit], place) if keys and unit < len(keys) else None

    @property
    def begins_samples(self) -> bool:
        """Whether the end of its prompt is the beginning of several samples."""
        return self.samples > 1 and self.siblings is None

    def output_ids(self) -> list[str]:
        """Return the names of the answers that get a token with its next one."""
        if not self.begins_samples:
            return [self.output_id]
        return [output_id(self.request_id, sample) for sample in range(self.samples)]

    def fork(self, sample: int = 1, arrival_number: int = 0) -> "Sequence":
        """Return one more sample of the same prompt, by number; it holds no memory yet."""
        child = Sequence(
            self.request_id, self.arrival_s, self.prompt_tokens, self.max_tokens, self.block_keys,
            self.priority, key_blocks=self.key_blocks, number=self.number,
            names_answer=self.names_answer, tenant=self.tenant,
            estimated_tokens=self.estimated_tokens, deadline_s=self.deadline_s,
        )  # fmt: skip
        child.siblings, child.arrival_number = self.siblings, arrival_number
        child.adapter = self.adapter
        child.output_id = output_id(self.request_id, sample)
        child.stopped = sample in self.ended_samples
        child.base_generated_tokens = self.base_generated_tokens
        return child

    def begin_behind(self, cached: int) -> None:
        """Begin to compute behind ``cached`` tokens of the prompt, which are in memory."""
        self.base_computed_tokens = cached
        if not self.preemptions:
            self.cached_tokens = cached

    def shorten_prompt(self) -> None:
        """Leave only the computed tokens to compute; the rest is generated, one by one.

        The length stays: ``generated_tokens`` is negative until the rest of the prompt is out.
        """
        if self.base_computed_tokens:
            self.base_generated_tokens = self.base_computed_tokens - self.prompt_tokens

    def stop(self) -> None:
        """Make the token of the running step the last one, whatever ``max_tokens`` says."""
        self.stopped = True
        if self.lockstep is not None:
            self.lockstep.stopped.append(self)
