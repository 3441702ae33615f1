"""The settings of a server's policies, and the objects that they name."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import ceil, inf
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, Self, get_args, get_origin

from servetwin.policies.registry import EVICTION_ORDERS, MEMORIES, SCHEDULERS, TABLES
from servetwin.workloads.errors import PolicyError, did_you_mean

if TYPE_CHECKING:
    from servetwin.policies.kv.kv_groups import KVGroup

Reservation = Literal["max", "pow2", "exact"]
PrefixIndex = Literal["radix", "blocks"]
QueueOrder = Literal["fcfs", "sjf", "priority", "edf", "longest-prefix", "fair"]
Admission = Literal["prompt", "peak", "full"]
Preemption = Literal["recompute", "swap"]
Recompute = Literal["all", "computed"]
Victim = Literal["newest", "lowest-priority", "least-progress"]
PromptBlocks = Literal["whole", "chunk"]
Rounding = Literal["up", "down"]
BudgetCount = Literal["rows", "padded"]
ChunkKind = Literal["decode", "prefill"]
Waste = Literal["internal", "external"]

# The least value of each count.
LEAST: dict[str, int] = TABLES["least"]
# The largest value of each.
MOST = 10**15

# The policies that read a setting: those of ``batching`` or of ``kv``.
READERS: dict[str, list[str]] = TABLES["readers"]


def unread_settings(policies: Mapping[str, object]) -> list[str]:
    """Return the settings that neither ``batching`` nor ``kv`` reads; classes may read any."""
    known: dict[str, Mapping[str, Any]] = {"batching": SCHEDULERS, "kv": MEMORIES}
    return [
        name
        for name, (kind, readers) in READERS.items()
        if policies[kind] in known[kind] and policies[kind] not in readers.split(", ")
    ]


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """Which policies a server runs, and their limits. Engine and simulator read the same one."""

    batching: str = "continuous"
    """Scheduler, which decides what each step computes."""
    kv: str = "paged"
    """KV memory, which gives sequences their space."""
    reservation: Reservation = "max"
    """Length of the region that a sequence gets (contiguous)."""
    rounding_waste: Waste = "internal"
    """Waste that the allocator's rounding to powers of two counts as (contiguous)."""
    prefix_cache: bool = False
    """Share equal prompt blocks (paged)."""
    kv_tokens: int = 32_768
    """The whole KV memory, in tokens, each of one group of layers."""
    block_tokens: int = 16
    """Tokens of a KV block (paged)."""
    max_model_len: int = 2_048
    """Longest prompt plus output, in tokens."""
    max_seqs: int = 16
    """Sequences in a batch at most; the size of a static batch."""
    token_budget: int = 256
    """Rows of a step at most; ``static`` and ``insertion`` have none."""
    budget_count: BudgetCount = "rows"
    """What whole prompts count in the budget: their rows, or as padded to the longest of a step."""
    padding: bool = True
    """Pad prompts to the longest of their batch, and compute ended rows to its end (static)."""
    pad_newcomers: bool = False
    """Pad the prompts that join in one step to the longest of them (``insertion``)."""
    one_row_chunk: ChunkKind = "decode"
    """What one row of a prompt is to the step time: a decode, or a prefill chunk."""
    decodes_between_prefills: int = 0
    """Steps of decodes after prompts, and after every try to admit some (prefill-first)."""
    wait_limit_s: float = 0.1
    """How long a static batch waits to fill."""
    queue_limit: int | None = None
    """Requests that may wait before further ones are refused; None: any number."""
    queued_tokens_limit: int | None = None
    """Tokens of prompts without a first token from which on requests are refused; None: any."""
    prefix_index: PrefixIndex = "radix"
    """Index that finds shared blocks."""
    eviction: str = "lru"
    """Order in which cached blocks are evicted."""
    queue_order: QueueOrder = "fcfs"
    """Order in which waiting requests are admitted."""
    admission: Admission = "prompt"
    """Memory that a request must find: for its prompt, the peak of all that run, or in full."""
    prompt_blocks: PromptBlocks = "whole"
    """Blocks that a prompt takes at a time: of all of it, or of each chunk as it comes (paged)."""
    full_prompt_gate: bool = True
    """Admit a prompt only where all of it fits; false: where its first chunk fits (``unified``)."""
    long_prefill_tokens: int = 0
    """Rows of a prompt in a step while other requests are there (``unified``); 0: any number."""
    long_prefill_adaptive: bool = False
    """Raise these rows to an equal share of the budget for each request that is there."""
    watermark: float = 0.0
    """Share of the memory that admission leaves free."""
    watermark_rounding: Rounding = "up"
    """Direction in which the watermark is rounded to whole blocks."""
    watermark_alone: bool = True
    """Keep the watermark free of a request that would run alone, too."""
    shed_ttft_s: float | None = None
    """TTFT after which a waiting request is given up; None: never."""
    preemption: Preemption = "recompute"
    """What happens to the keys and values of a preempted sequence."""
    recompute: Recompute = "all"
    """What is recomputed of a prompt preempted in its middle: all, or what had been computed."""
    victim: Victim = "newest"
    """Sequence that is preempted when memory runs out."""
    admit_after_preemption: bool = False
    """Admit waiting sequences even in a step that has preempted one."""
    chunk_prompts: bool = True
    """Split a prompt where it does not fit what is left of the budget (``unified``)."""
    queue_samples: bool = False
    """Queue each answer to a prompt as a request of its own; else the computed prompt forks."""
    decide_ahead: bool = False
    """Decide each step before the tokens of the one before it are known (``unified``)."""
    decode_needs_free_block: bool = False
    """Preempt where a decode finds no free block, even if it needs none (paged)."""
    host_kv_tokens: int = 0
    """Host memory for what preemption swaps out, in tokens."""
    host_cache_tokens: int = 0
    """Host memory for prompts that the prefix cache has evicted, in tokens."""
    far_cache_tokens: int = 0
    """Memory for prompts that host memory has no room for, in tokens: an SSD, or a pool."""
    far_cache_slowdown: float = 8.0
    """How many times as long as over the host link a position takes from there."""
    far_cache_latency_tokens: int = 0
    """Positions that take as long over the host link as the first byte from there."""
    far_cache_shared: bool = False
    """Share that memory among the servers of a profile."""
    adapter_slots: int = 0
    """LoRA adapters that running requests may use at once; 0: any number, each always loaded."""
    adapter_tokens: int = 0
    """Positions that take as long over the host link as an adapter does."""
    kv_groups: str = "full"
    """Groups of layers with block tables of their own, as ``full,5xwindow:1024`` (grouped)."""
    draft_rows: int = 0
    """Drafted tokens that each decode verifies in a step, as rows beside its own."""
    draft_slots: int = 0
    """Positions behind the rows of a decode that a drafter fills with keys of its own."""
    prompt_token: bool = True
    """The prompt's pass yields the first token; false: the first block of drafts does."""

    def __post_init__(self) -> None:
        for registry in (SCHEDULERS, MEMORIES, EVICTION_ORDERS):
            name = registry.name_of(getattr(self, registry.role))
            object.__setattr__(self, registry.role, name)
        for name, least in LEAST.items():
            value = getattr(self, name)
            whole = value is None or (isinstance(value, Integral) and value <= MOST)
            require(whole, name, value, f"a whole number, at most {MOST:,}")
            require(value is None or value >= least, name, value, f"at least {least}")
        for choice in fields(self):
            if get_origin(choice.type) is Literal:
                require_known(choice.name, getattr(self, choice.name), get_args(choice.type))
            elif choice.type is bool:
                value = getattr(self, choice.name)
                require(isinstance(value, bool), choice.name, value, "true or false")
        EVICTION_ORDERS.require(self.eviction)
        _require_seconds("wait_limit_s", self.wait_limit_s)
        slowdown = self.far_cache_slowdown
        is_factor = isinstance(slowdown, Real) and 0 < slowdown < inf
        require(is_factor, "far_cache_slowdown", slowdown, "a finite number above 0")
        if self.shed_ttft_s is not None:
            _require_seconds("shed_ttft_s", self.shed_ttft_s)
        share = isinstance(self.watermark, Real) and 0 <= self.watermark < 1
        require(share, "watermark", self.watermark, "at least 0 and below 1")
        for name in unread_settings(self._named()):
            (kind, readers), value = READERS[name], getattr(self, name)
            if value != _DEFAULTS[name]:
                raise PolicyError(
                    f"{name}: {as_written(value)} would change nothing: only {kind}: {readers} "
                    f"reads it, not {getattr(self, kind)}; leave it out"
                )
        if self.kv == "grouped":
            self._groups()
        self._require_room()
        self._require_exclusions()

    def changed(self, **changes: Any) -> Self:
        """Return a copy with changes, without earlier settings that its policies do not read."""
        unread = unread_settings({**self._named(), **changes})
        return replace(self, **{**{name: _DEFAULTS[name] for name in unread}, **changes})

    @property
    def draft_reach(self) -> int:
        """Positions behind its answer that the last pass of a sequence uses."""
        drafts = self.draft_rows
        unknown = self.decide_ahead * (1 + drafts)
        return drafts and drafts + unknown + self.draft_slots + (not self.prompt_token)

    def with_drafts(self, drafts: int, prompt_token: bool = True, ahead: bool = False) -> Self:
        """Return a copy whose decodes verify so many drafts, decided in step or as before.

        The rows of ``unified`` keep their budget, if it feeds every sequence (vLLM V1); elsewhere
        it grows by the drafts, so that prompts find as much room as before.
        """
        budget = self.token_budget + self.max_seqs * drafts
        if self.batching == "unified":
            budget = max(self.token_budget, self.max_seqs * (1 + drafts))
        drafting = {"draft_rows": drafts, "prompt_token": prompt_token, "token_budget": budget}
        return self.changed(**drafting, decide_ahead=ahead and self.decide_ahead)

    def _named(self) -> dict[str, object]:
        return {"batching": self.batching, "kv": self.kv}

    def watermark_of(self, units: int) -> int:
        """Return how many of the memory's ``units`` the watermark keeps free."""
        free = self.watermark * units
        return ceil(free) if self.watermark_rounding == "up" else int(free)

    def _groups(self) -> "list[KVGroup]":
        """Return the groups of layers. Raises where they are impossible."""
        from servetwin.policies.kv.kv_groups import parse_groups

        return parse_groups(self.kv_groups, self.block_tokens, self.prefix_cache)

    def _exclusions(self) -> list[tuple[str, object, bool, str]]:
        """Return (setting, its only value, whether that is so, beside what)."""
        far = self.far_cache_tokens
        cache, drafts, long = self.prefix_cache, self.draft_rows, self.long_prefill_tokens
        unified, grouped = self.batching == "unified", self.kv == "grouped"
        drafting = f"with draft_rows {drafts}"
        ahead = "but for batching: unified with queue_samples: true"
        whole = "with prefix_cache or batching: unified, where no prompt is cut short"
        return [
            ("prefix_cache", False, self.kv == "contiguous", "with kv: contiguous"),
            ("eviction", "lru", grouped and cache, "with kv: grouped"),
            ("host_cache_tokens", 0, grouped, "with kv: grouped"),
            ("host_cache_tokens", 0, not cache, "without prefix_cache, whose tier it is"),
            ("far_cache_tokens", 0, not cache, "without prefix_cache, whose tier it is"),
            ("far_cache_slowdown", 8.0, not far, "without far_cache_tokens"),
            ("far_cache_latency_tokens", 0, not far, "without far_cache_tokens"),
            ("far_cache_shared", False, not far, "without far_cache_tokens"),
            ("queue_order", "fcfs", self.adapter_slots > 0, "with adapter_slots"),
            ("adapter_tokens", 0, not self.adapter_slots, "without adapter_slots"),
            ("decide_ahead", False, not (unified and self.queue_samples), ahead),
            ("decide_ahead", False, not self.prompt_token, "without prompt_token"),
            ("recompute", "all", cache or unified, whole),
            ("recompute", "all", drafts > 0, drafting),
            ("decode_needs_free_block", False, drafts > 0, drafting),
            ("draft_slots", 0, not drafts, drafting),
            ("prompt_token", True, not drafts, drafting),
            ("long_prefill_adaptive", False, not long, "without long_prefill_tokens"),
        ]

    def _require_exclusions(self) -> None:
        for name, only, applies, beside in self._exclusions():
            holds = not applies or getattr(self, name) == only
            require(holds, name, getattr(self, name), f"{str(only).lower()} {beside}")

    def _require_room(self) -> None:
        """Raise where the memory is below a block, or a step below the rows of its sequences."""
        seqs, drafts, budget = self.max_seqs, self.draft_rows, self.token_budget
        room, rows, long = self.kv_tokens >= self.block_tokens, 1 + drafts, self.long_prefill_tokens
        require(room, "kv_tokens", self.kv_tokens, "at least one block")
        if has_token_budget(self.batching):
            right = f"at least max_seqs ({seqs}): a step feeds every running sequence"
            if drafts:
                right = (
                    f"at least {seqs * rows} (max_seqs {seqs} x {rows} rows): a step verifies "
                    f"{drafts} drafts of every running sequence"
                )
            require(budget >= seqs * rows, "token_budget", budget, right)
        whole = self.chunk_prompts or budget >= self.max_model_len
        longest = f"at least max_model_len ({self.max_model_len}), as no prompt is split"
        require(whole, "token_budget", budget, longest)
        least = f"0, or at least {rows}: the rows of a decode and its drafts"
        require(not drafts or not long or long >= rows, "long_prefill_tokens", long, least)

    @property
    def name(self) -> str:
        """A short label: ``continuous+paged+prefix``."""
        label = f"{self.batching}+{self.kv}"
        if self.kv == "contiguous" and self.reservation != "max":
            label += f"-{self.reservation}"
        return label + ("+prefix" if self.prefix_cache else "")

    @property
    def kv_size_tokens(self) -> int:
        """What vLLM prints as the KV cache size: the tokens of requests of the longest length that
        the memory holds together."""
        if self.kv != "grouped":
            return self.kv_tokens
        from servetwin.policies.kv.kv_groups import blocks_per_request

        size, longest = self.block_tokens, self.max_model_len
        rows = self.token_budget * (1 + self.decide_ahead)
        each = blocks_per_request(self._groups(), longest, rows, size)
        return self.kv_tokens // size * longest // each

    def as_dict(self) -> dict[str, object]:
        """The settings by name, for files."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: str(v) if isinstance(v, str) else v for name, v in values.items()}


_DEFAULTS = {field.name: field.default for field in fields(PolicyConfig)}


def has_token_budget(batching: str) -> bool:
    """Return what a registered scheduler declares; True of any other, which is not loaded here."""
    known = batching in SCHEDULERS
    return getattr(SCHEDULERS[batching], "has_token_budget", True) if known else True


def as_written(value: object) -> str:
    """Return a value as options and files have it: ``true``, not Python's ``True``."""
    return repr(value).lower() if isinstance(value, bool) else repr(value)


def require(holds: bool, name: str, value: object, right: str) -> None:
    """Raise ``PolicyError`` unless a setting holds; ``right`` says what it must be."""
    if not holds:
        raise PolicyError(f"{name}: {as_written(value)} is not possible; it must be {right}")


def _require_seconds(name: str, value: float) -> None:
    holds = isinstance(value, Real) and 0 <= value <= MOST
    require(holds, name, value, f"a number from 0 to {MOST:,}")


def require_known(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ``PolicyError`` with the nearest choice where ``value`` is none of them."""
    if value not in choices:
        hint = did_you_mean(value, choices, f"it must be one of {', '.join(choices)}")
        raise PolicyError(f"{name}: {value!r} is not possible; {hint}")
