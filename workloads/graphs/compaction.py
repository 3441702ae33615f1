"""Compaction: a summary stands for the history of a session once its context is too long."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from servetwin.workloads.block_ids import Chains, Ids
from servetwin.workloads.errors import TraceError
from servetwin.workloads.graphs.repeats import Repeats
from servetwin.workloads.request import Request
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace


def compact(trace: Trace, limit_tokens: int, summary_tokens: int) -> Trace:
    """Replace the history of a session where prompt and output would pass ``limit_tokens``.

    A request of its own asks for the summary: the history is its prompt, it waits for what the turn
    waited for, and the turn waits for it. From then on the prompts of the session are its head
    (``shared_prefix_tokens``), the summary, and what the trace has after the history, until they
    are too long again. A turn that is too long even without its history keeps its length. A session
    whose recorded prompt becomes shorter than what was summarised begins anew.

    Raises ``TraceError`` for real prompts and for sizes below 1.
    """
    if min(limit_tokens, summary_tokens) < 1:
        sizes = f"{limit_tokens} and {summary_tokens}"
        raise TraceError(f"contexts and summaries have 1 token or more, not {sizes}")
    if any(request.prompt is not None for request in trace):
        raise TraceError("real prompts have the lengths that they have, and are not compacted")
    compaction = _Compaction(trace, limit_tokens, summary_tokens)
    requests = [each for request in trace for each in compaction.of(request)]
    added = counted(len(requests) - len(trace), "request")
    what = f"beyond {limit_tokens:,} tokens a summary of {summary_tokens:,} replaces the history"
    return trace.replaced(requests, f"{what}: {added} added")


@dataclass(frozen=True, slots=True)
class _Summary:
    """Blocks ``head`` to ``end`` of a prompt, which stand for ``dropped`` more than they are.

    The blocks before them are as recorded. In a trace without ids a block is a token.
    """

    number: int = 0
    head: int = 0
    end: int = 0
    dropped: int = 0


class _Compaction:
    """The sessions of a trace as far as they have come."""

    def __init__(self, trace: Trace, limit_tokens: int, summary_tokens: int) -> None:
        self._limit, self._summary_tokens = limit_tokens, summary_tokens
        self._rounds, self._chains, self._numbers = Repeats(trace), Chains(), count(1)
        self._summaries = defaultdict[str, _Summary](_Summary)
        # By session, the recorded tokens of its last turn, answer included.
        self._before_tokens = defaultdict[str, int](int)

    def of(self, request: Request) -> Iterator[Request]:
        """Yield a request as it is sent, after the one that asks for a summary if it needs one."""
        session, size = request.session_id or "", request.block_tokens or 1
        history = min(self._before_tokens[session], request.prompt_tokens)
        summary = self._summaries[session]
        if request.prompt_tokens < size * (summary.end + summary.dropped):
            summary = _Summary()
        turn = self._shortened(request, summary)
        if turn.total_tokens > self._limit:
            head = (request.shared_prefix_tokens or 0) // size
            end = head - (-self._summary_tokens // size)
            longer = _Summary(next(self._numbers), head, end, history // size - end)
            if longer.dropped > summary.dropped:
                asked = self._asking(turn, history - size * summary.dropped)
                yield asked
                turn = replace(
                    self._shortened(request, longer),
                    parent_ids=(asked.request_id,),
                    delay_s=request.delay_s and 0.0,
                )
                summary = longer
        if session:
            self._summaries[session], self._before_tokens[session] = summary, request.total_tokens
        yield turn

    def _asking(self, turn: Request, history_tokens: int) -> Request:
        """Return the request for a summary of the first tokens of a turn's prompt."""
        return replace(
            turn,
            request_id=f"{turn.request_id}/summary",
            prompt_tokens=history_tokens,
            output_tokens=self._summary_tokens,
            prefix_block_ids=turn.prefix_block_ids[: history_tokens // (turn.block_tokens or 1)],
            answer_block_ids=(),
            turn=None,
            reasoning_tokens=None,
            estimated_output_tokens=None,
            kind="summary",
        )

    def _shortened(self, request: Request, summary: _Summary) -> Request:
        """Return a request with a summary in place of its history."""
        if not summary.dropped:
            return request
        return replace(
            request,
            prompt_tokens=request.prompt_tokens - summary.dropped * (request.block_tokens or 1),
            prefix_block_ids=self._ids(request.prefix_block_ids, summary),
            answer_block_ids=self._rounds.later(request.answer_block_ids, summary.number),
        )

    def _ids(self, recorded: Ids, summary: _Summary) -> Ids:
        """Return ids that a prompt shares with those alone that have the same summary."""
        ids, end = tuple(recorded), summary.end
        later = ids[summary.head : end] + ids[end + summary.dropped :]
        return self._chains.of((*ids[: summary.head], *self._rounds.later(later, summary.number)))
