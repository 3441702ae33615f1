"""Bursts for the fit: lone prompts, batches that shrink one by one, prompts that join decodes."""

from collections.abc import Iterator
from math import ceil

from app.twin.black_box.findings import Findings
from app.twin.black_box.limits import LADDER, LONE_OUTPUTS, SMALL_PROMPT
from app.twin.black_box.session import Ask, Session

MOST_AT_ONCE = 64
JOINING = (24, 60, 120, 240, 480)
LEAST_OUTPUTS = 6
_SHARE = 0.15
"""No burst may take more of the time left."""


def bursts(session: Session, findings: Findings) -> Iterator[list[Ask]]:
    """One round; each burst is planned with what the ones before it showed."""
    size = _most_at_once(session, findings)
    yield from _lone(session, findings)
    if findings.identified.get("batching") == "static":
        yield from _equal(session, findings, size)
        return
    yield _shrinking(session, findings, size, SMALL_PROMPT)
    for runners in sorted({1, size // 2, size - 1} - {0}):
        yield _joined(session, findings, runners)
    if long := _long_prompt(session, findings, size):
        yield _shrinking(session, findings, size, long)


def _most_at_once(session: Session, findings: Findings) -> int:
    seen = int(findings.identified.get("max_seqs") or MOST_AT_ONCE)
    return max(1, min(seen, MOST_AT_ONCE, session.allowance.max_requests // 10))


def _lone(session: Session, findings: Findings) -> Iterator[list[Ask]]:
    """A prompt of every size, each a little different in every round."""
    top = findings.longest - LONE_OUTPUTS
    for size in (*LADDER, top):
        prompt = min(top, max(1, round(size * session.rng.uniform(0.7, 1.0))))
        if size <= top and session.ttft_s(prompt) < _SHARE / 2 * session.allowance.left_s:
            yield [Ask(prompt, LONE_OUTPUTS)]


def _shrinking(session: Session, findings: Findings, size: int, prompt: int) -> list[Ask]:
    """A batch in which one request after the other ends: every number of decodes is seen."""
    room = findings.longest - prompt
    filling = ceil(size * prompt / findings.identified.get("token_budget", size * prompt))
    lengths = (LEAST_OUTPUTS + filling + 2 * i for i in range(size))
    prompts = session.rng.integers(max(1, prompt // 2), prompt + 1, size=size).tolist()
    return [Ask(p, max(2, min(room, n))) for p, n in zip(prompts, lengths, strict=True)]


def _long_prompt(session: Session, findings: Findings, size: int) -> int:
    """As long as a batch of them may be: for long contexts in full batches."""
    prompt = findings.longest // 2
    while prompt > 2 * SMALL_PROMPT:
        if size * session.ttft_s(prompt) < _SHARE * session.allowance.left_s:
            return prompt
        prompt //= 2
    return 0


def _joined(session: Session, findings: Findings, runners: int) -> list[Ask]:
    """Prompts of all sizes, one at a time, into a batch that decodes."""
    itl_s = session.itl_s(runners)
    at_s = 2 * session.ttft_s(SMALL_PROMPT * runners) + 3 * itl_s
    newcomers = []
    longest = findings.longest - 3
    for size in (*JOINING, longest):
        prompt = min(longest, round(size * session.rng.uniform(0.7, 1.0)))
        if size <= longest and session.ttft_s(prompt) < _SHARE / 4 * session.allowance.left_s:
            newcomers.append(Ask(max(1, prompt), 3, at_s))
            at_s += 1.5 * session.ttft_s(prompt) + 5 * itl_s
    outputs = max(2, min(ceil(at_s / itl_s), findings.longest - SMALL_PROMPT))
    return [*[Ask(SMALL_PROMPT, outputs)] * runners, *newcomers]


def _equal(session: Session, findings: Findings, size: int) -> Iterator[list[Ask]]:
    """Batches of one length each: nobody's row is held after its end."""
    sizes = sorted({n for n in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if n < size} | {size})
    for prompt in (SMALL_PROMPT, _long_prompt(session, findings, size)):
        for n in sizes if prompt else ():
            yield [Ask(prompt, min(8, findings.longest - prompt))] * n
