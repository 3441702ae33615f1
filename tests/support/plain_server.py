"""A server that decides request by request in plain lists, as other simulators do.

It shares nothing with the policies: no lockstep, no runs of steps, no memory object. It follows the
rules of vLLM before version 1 and of the simulator Vidur (Agrawal et al., MLSys 2024).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from servetwin.workloads.request import Request

Entry = tuple[str, int, int]
"""(request id, first position, rows)."""


@dataclass
class Running:
    """A request, what has been computed of it, and the blocks that it holds.

    Both lengths are those of the trace until a preemption begins a new request with the rest.
    """

    request: Request
    prompt_tokens: int
    """Tokens to compute before the next one comes out."""
    output_tokens: int
    """Tokens to come out from then on."""
    generated_tokens: int = 0
    computed_tokens: int = 0
    blocks: int = 0
    preemptions: int = 0

    @property
    def decodes(self) -> bool:
        """Whether its prompt is computed."""
        return self.computed_tokens >= self.prompt_tokens

    @property
    def ended(self) -> bool:
        """Whether its last token is out."""
        return self.generated_tokens >= self.output_tokens

    def restart(self, prompt_tokens: int) -> None:
        """Begin again with so many tokens as the prompt; the sum of both lengths stays."""
        self.output_tokens += self.prompt_tokens - prompt_tokens
        self.prompt_tokens = prompt_tokens
        self.computed_tokens = self.generated_tokens = self.blocks = 0
        self.preemptions += 1


@dataclass
class PlainServer:
    """Blocks, slots and rows; ``chunks`` is chunked prefill, else prompts run whole and alone.

    With ``interval``, whole prompts run after so many steps of decodes, without padding, and only
    where memory has room for what all that run will hold at any time.
    """

    total_blocks: int
    block_tokens: int
    max_seqs: int
    token_budget: int
    watermark_blocks: int
    chunks: bool
    interval: int = 0
    shortens: bool = False
    """Whether a prompt that is preempted in its middle is as short then as what was computed."""
    preempted_prompts: int = 0
    """Preemptions in the middle of a prompt."""
    decoded: int = 0
    """Steps of decodes since the last prompts."""
    waiting: list[Running] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    """In the order of admission, which is that of arrival."""

    def step(self) -> list[tuple[Running, int]]:
        """Decide a step: requests with the rows that they compute."""
        if self.chunks:
            rows = self._decodes()
            return self._prompts(rows)
        step = [] if self._must_decode() else self._whole_prompts()
        self.decoded = 0 if step else self.decoded + 1
        return step or self._decodes()

    def end(self, step: list[tuple[Running, int]]) -> list[Running]:
        """Advance the requests of a step; return the ones that came to a token."""
        sampled = []
        for one, rows in step:
            one.computed_tokens += rows
            if one.computed_tokens >= one.prompt_tokens:
                one.generated_tokens += 1
                sampled.append(one)
        self.running = [one for one in self.running if not one.ended]
        return sampled

    def _must_decode(self) -> bool:
        if not self.interval or not self.running:
            return False
        return self.decoded == 0 or self.decoded % self.interval > 0

    def _free(self) -> int:
        return self.total_blocks - sum(one.blocks for one in self.running)

    def _admits(self, one: Running) -> bool:
        needed = -(-one.prompt_tokens // self.block_tokens)
        if len(self.running) == self.max_seqs or self._free() - needed < self.watermark_blocks:
            return False
        if self.interval and self._most_blocks([*self.running, one]) >= self.total_blocks:
            return False
        one.blocks = needed
        self.running.append(self.waiting.pop(0))
        return True

    def _most_blocks(self, ones: Sequence[Running]) -> int:
        """Return what is held at most, found by going through every step to come."""
        lengths = []
        for one in ones:
            generated = one.generated_tokens + (not one.decodes)
            left = max(0, one.output_tokens - generated - 1)
            lengths.append((one.prompt_tokens + generated, left))
        steps = range(1 + max(left for _, left in lengths))
        return max(sum(held + n for held, left in lengths if left >= n) for n in steps)

    def _whole_prompts(self) -> list[tuple[Running, int]]:
        step: list[tuple[Running, int]] = []
        prompts: list[int] = []
        while self.waiting:
            one = self.waiting[0]
            prompts.append(one.prompt_tokens)
            rows = sum(prompts) if self.interval else len(prompts) * max(prompts)
            if rows > self.token_budget or not self._admits(one):
                break
            step.append((one, one.prompt_tokens))
        return step

    def _decodes(self) -> list[tuple[Running, int]]:
        """Let each decode in turn see a free block; without one, preempt the newest request."""
        step: list[tuple[Running, int]] = []
        for one in [one for one in self.running if one.decodes]:
            while one in self.running and self._free() < 1:
                self._preempt(self.running[-1])
            if one in self.running:
                one.blocks += one.computed_tokens == one.blocks * self.block_tokens
                step.append((one, 1))
        return step

    def _preempt(self, one: Running) -> None:
        self.running.remove(one)
        self.preempted_prompts += not one.decodes
        if self.shortens and not one.decodes:
            one.restart(one.computed_tokens)
        else:
            one.restart(one.prompt_tokens + one.generated_tokens)
        self.waiting.insert(0, one)

    def _prompts(self, step: list[tuple[Running, int]]) -> list[tuple[Running, int]]:
        left = self.token_budget - len(step)
        for one in [one for one in self.running if not one.decodes]:
            rows = min(one.prompt_tokens - one.computed_tokens, left)
            if rows:
                step.append((one, rows))
                left -= rows
        while self.waiting and left:
            one = self.waiting[0]
            if not self._admits(one):
                break
            rows = min(one.prompt_tokens, left)
            step.append((one, rows))
            left -= rows
        return step


@dataclass
class PlainRun:
    """Every step as it was decided, and the times of each request's first and last token."""

    steps: list[list[Entry]] = field(default_factory=list)
    first_token_s: dict[str, float] = field(default_factory=dict)
    last_token_s: dict[str, float] = field(default_factory=dict)
    preemptions: int = 0


def run_plainly(
    server: PlainServer,
    requests: Sequence[Request],
    step_s: Callable[[list[tuple[int, int, bool]]], float],
) -> PlainRun:
    """Run ``requests`` to the end; ``step_s`` times a step of (first position, rows, decode)."""
    run, coming, now_s = PlainRun(), list(requests), 0.0
    while True:
        while coming and coming[0].arrival_s <= now_s:
            asked = coming.pop(0)
            server.waiting.append(Running(asked, asked.prompt_tokens, asked.output_tokens))
        step = server.step()
        if not step:
            if not coming:
                return run
            now_s = coming[0].arrival_s
            continue
        entries = [(one.request.request_id, one.computed_tokens, rows) for one, rows in step]
        run.steps.append(sorted(entries))
        now_s += step_s([(one.computed_tokens, rows, one.decodes) for one, rows in step])
        for one in server.end(step):
            run.first_token_s.setdefault(one.request.request_id, now_s)
            run.last_token_s[one.request.request_id] = now_s
            if one.ended:
                run.preemptions += one.preemptions
