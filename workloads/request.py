"""One request of a trace, in the canonical fields that every reader produces."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from servetwin.workloads.block_ids import Ids

# A message of a chat in OpenAI's form: ``role`` and ``content``, a text or a list of parts.
Message = Mapping[str, Any]
PromptContent = str | tuple[Message, ...]
# Tokens of each id of a prompt's blocks, where a source does not say.
BLOCK_TOKENS = 16
RequestStatus = Literal["ok", "failed"]
# The error of a request on which a load test hung up on purpose.
CANCELLED_BY_TEST = "cancelled_by_test"


@dataclass(frozen=True, slots=True)
class Request:
    """What one client asks of the server, and when.

    ``prefix_block_ids`` are *chained*: an id stands for the whole prompt up to and including its
    block of ``block_tokens`` tokens, so equal ids mean equal prefixes. There is one per started
    block (``ceil``) or one per full block (``floor``); tokens past the last id belong to this
    request alone.

    ``answer_block_ids`` go on where there is one id per full block: they name the blocks that end
    in the answer, for later prompts that repeat it.

    In a closed loop it is sent ``delay_s`` after the last of ``parent_ids`` has ended
    (``workloads.graphs``).
    """

    request_id: str
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    prefix_block_ids: "Ids" = ()
    block_tokens: int | None = None
    session_id: str | None = None
    parent_ids: tuple[str, ...] = ()
    turn: int | None = None
    delay_s: float | None = None
    shared_prefix_tokens: int | None = None
    reasoning_tokens: int | None = None
    model: str | None = None
    kind: str | None = None
    tenant: str | None = None
    priority: int = 0
    samples: int = 1
    """Answers to the same prompt, each of ``output_tokens``; they share the prompt's KV."""
    estimated_output_tokens: int | None = None
    """The declared or predicted length; schedulers by length read this, never the true one."""
    ttft_slo_s: float | None = None
    """When the first token is due, after the arrival."""
    answer_block_ids: "Ids" = ()
    status: RequestStatus = "ok"
    modal: Mapping[str, int] | None = None
    source_line: int | None = None
    prompt: PromptContent | None = None
    """The real prompt; without it a prompt of the same length is made up."""
    answer: str | None = None
    """The answer in the source: only its length counts."""
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    """HTTP headers of this request alone; they may be secrets and are never written."""

    @property
    def total_tokens(self) -> int:
        """Prompt and output together: the longest context this request reaches."""
        return self.prompt_tokens + self.output_tokens


# The fields of a request before it is one. Its slots are the same, so it can become one.
# A frozen dataclass sets each of its fields by a call, which costs five times as much.
Unfrozen = make_dataclass(
    "Unfrozen", [(f.name, Any, field(default=f.default)) for f in fields(Request)], slots=True
)
