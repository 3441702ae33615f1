"""Random workloads: prefixes, conversations, preemption, aborts, priorities, long prompts."""

from dataclasses import replace
from random import Random

from tests.conformance.workload import BLOCK_TOKENS, Asked, Workload

_GROUPS = [
    "window:64", "full,window:48", "full,window:40,window:40", "full,chunk:64",
    "full,window:17,chunk:32",
]  # fmt: skip


def random_workload(seed: int, groups: str | None = None) -> Workload:
    """Return the workload of a seed, with ``groups`` of layers if they are given.

    Server and requests are drawn independently.
    """
    rng = Random(f"conformance {seed}")
    clients = _Clients(rng)
    requests = clients.requests()
    longest = max(len(asked.prompt) + len(asked.answer) for asked in requests)
    max_seqs = rng.choice([1, 4, 8, 16, 32, 32])
    watermark = rng.choice([0.0, 0.0, 0.01, 0.05, 0.2])
    max_model_len, chunk_prompts = max(longest + 1, 128), rng.random() < 0.8
    token_budget = max(max_seqs + 8, rng.choice([16, 64, 64, 128, 512, 2048]))
    memory_tokens = rng.choice([1.0, 1.2, 1.5, 2, 4, 10]) * longest
    blocks = int(memory_tokens / BLOCK_TOKENS) + 1
    limits = Random(f"limits {seed}")
    spare_seqs = limits.choice([0, 0, 0, 8])
    long_prefill_tokens = rng.choice([0, 0, 7, 32, 100])
    groups = groups or Random(f"groups {seed}").choice([*["full"] * len(_GROUPS), *_GROUPS])
    if groups != "full":
        blocks = (blocks + 2) * len(groups.split(","))
    return Workload(
        name=str(seed),
        blocks=_fitting_blocks(blocks, watermark),
        max_seqs=max_seqs,
        token_budget=token_budget if chunk_prompts else max(token_budget, max_model_len),
        max_model_len=max_model_len,
        prefix_cache=rng.random() < 0.6,
        priorities=rng.random() < 0.4,
        full_prompt_gate=rng.random() < 0.7,
        long_prefill_tokens=long_prefill_tokens,
        long_prefill_adaptive=long_prefill_tokens > 0 and limits.random() < 0.5,
        spare_seqs=spare_seqs,
        queued_tokens=limits.choice([None] * 6 + [longest, 4 * longest]),
        watermark=watermark,
        chunk_prompts=chunk_prompts,
        repeats=clients.repeating > 0,
        decide_ahead=rng.random() < 0.5,
        groups=groups,
        requests=requests,
    )


def with_drafts(workload: Workload, ahead: bool = False) -> Workload:
    """Return the workload whose decodes verify drafts, in step or decided ``ahead``.

    No answer ends where the model does, and every step feeds all sequences. Beside a prefix cache
    each prompt has one answer: of the equal blocks of equal answers, vLLM may find an older copy.
    """
    rng = Random(f"drafts {workload.name}")
    drafts = rng.choice([1, 2, 3, 5, 8])
    slots = rng.choice([0, 0, drafts])
    longest = max(len(asked.prompt) + len(asked.answer) for asked in workload.requests)
    max_model_len = max(workload.max_model_len, longest + 3 * drafts + 3)
    rows = (workload.max_seqs + workload.spare_seqs) * (1 + drafts)
    budget = max(workload.token_budget, rows, 0 if workload.chunk_prompts else max_model_len)
    groups = len(workload.groups.split(","))
    needed = ((longest + 2 * drafts + 1 + slots) // BLOCK_TOKENS + 2 * groups - 1) * groups
    blocks = _fitting_blocks(max(workload.blocks, needed), workload.watermark)
    long, requests = workload.long_prefill_tokens, workload.requests
    if workload.prefix_cache:
        requests = [replace(asked, n=1) for asked in requests]
    return replace(
        workload, blocks=blocks, token_budget=budget, max_model_len=max_model_len,
        long_prefill_tokens=max(long, 1 + drafts) if long else 0, decide_ahead=ahead,
        draft_rows=drafts, draft_slots=slots, requests=requests,
    )  # fmt: skip


def with_adapters(workload: Workload) -> Workload:
    """Return the workload whose requests ask for LoRA adapters, more than there are slots for."""
    rng = Random(f"adapters {workload.name}")
    slots, kinds = rng.choice([1, 1, 2, 3]), rng.choice([2, 4, 8])
    requests, chosen = list[Asked](), dict[str, int]()
    for asked in workload.requests:
        own = chosen.get(asked.parent or "") or rng.randint(0, kinds)
        chosen[asked.name] = own
        requests.append(replace(asked, adapter=own, priority=0))
    return replace(workload, adapter_slots=slots, priorities=False, requests=requests)


def _fitting_blocks(blocks: int, watermark: float) -> int:
    """Return a number of blocks of which the watermark is the same with vLLM's own block."""
    while int(watermark * blocks) != int(watermark * (blocks + 1)):
        blocks += 1
    return blocks


class _Clients:
    """Draws the requests of a workload."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._longest = longest = rng.choice([30, 60, 200, 400])
        self._most_output = rng.choice([8, 40, 120, 250])
        self._next_token = 0
        self._prefixes = [self._fresh(rng.randint(1, longest)) for _ in range(rng.choice([1, 3]))]
        self._sharing = rng.choice([0.0, 0.5, 0.9])
        self._aborting = rng.choice([0.0, 0.0, 0.1])
        self.repeating = rng.choice([0.0, 0.0, 0.4])
        self._most_answers = rng.choice([1, 1, 1, 2, 4])
        self._past: list[Asked] = []
        self._stopping = rng.choice([0.0, 0.5, 1.0])
        self._turns = rng.choice([1, 1, 2, 3])
        self._priorities = rng.choice([1, 2, 5])

    def requests(self) -> list[Asked]:
        """Return the requests of all clients, in the order of arrival."""
        step, asked = 0, list[Asked]()
        spacing = self._rng.choice([0, 1, 3, 10])
        for client in range(self._rng.randint(20, 60)):
            step += self._rng.randint(0, 2 * spacing)
            asked += self._conversation(client, step)
        return asked

    def _conversation(self, client: int, step: int) -> list[Asked]:
        context = self._opening()
        turns, parent = list[Asked](), None
        for turn in range(self._rng.randint(1, self._turns)):
            if turn:
                step = self._rng.randint(0, 30)
                context = context + self._fresh(self._rng.randint(1, self._longest))
            answer = self._fresh(self._rng.randint(1, self._most_output))
            hangs_up = self._rng.random() < self._aborting
            one = Asked(
                f"{client}.{turn}", context, answer, step, self._rng.randrange(self._priorities),
                parent, self._rng.randint(0, 20) if hangs_up else None,
                self._rng.randint(1, self._most_answers), self._rng.random() < self._stopping,
            )  # fmt: skip
            turns.append(one)
            self._past.append(one)
            context, parent = context + answer, one.name
        return turns

    def _opening(self) -> list[int]:
        tokens = self._rng.randint(1, self._longest)
        if self._past and self._rng.random() < self.repeating:
            other = self._rng.choice(self._past[-5:])
            repeated = other.answer[: self._rng.randint(0, len(other.answer))]
            return other.prompt + repeated + self._fresh(self._rng.randint(1, 30))
        if self._rng.random() >= self._sharing:
            return self._fresh(tokens)
        prefix = self._rng.choice(self._prefixes)[:tokens]
        return prefix + self._fresh(tokens - len(prefix))

    def _fresh(self, tokens: int) -> list[int]:
        first = self._next_token
        self._next_token += tokens
        return list(range(first, first + tokens))
