"""A request inside the server: how far it has been computed and which KV memory it holds."""

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Sequence:
    """The state of one request that a policy sees. It never holds the true output length.

    ``computed_tokens`` (positions whose keys and values are in KV memory) catches up with
    ``total_tokens``; when a step brings it level, that step yields the next token. Prefill,
    chunked prefill, decode and recompute after preemption are the same movement.
    """

    request_id: str
    arrival_s: float
    prompt_tokens: int
    max_tokens: int
    block_keys: list[int] = field(default_factory=list)
    """One chained key per full prompt block of the KV memory's block size; for prefix sharing."""
    priority: int = 0

    computed_tokens: int = 0
    generated_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens found in the prefix cache at the first admission."""
    preemptions: int = 0
    stopped: bool = False
    """Set by the engine when the sequence ends before ``max_tokens`` (end of sequence, stop)."""

    blocks: list[int] = field(default_factory=list)
    """Block table, in the order of positions (paged memory)."""
    region_start: int = -1
    """First token slot of the reserved region (contiguous memory); -1 while it holds none."""
    region_tokens: int = 0
    """Length of the reserved region (contiguous memory)."""

    @property
    def total_tokens(self) -> int:
        """Prompt and generated tokens."""
        return self.prompt_tokens + self.generated_tokens

    @property
    def final_kv_tokens(self) -> int:
        """KV positions held at the end: the last generated token is never fed back."""
        return self.prompt_tokens + self.max_tokens - 1

    @property
    def finished(self) -> bool:
        """Whether the last token is out."""
        return self.stopped or self.generated_tokens >= self.max_tokens
