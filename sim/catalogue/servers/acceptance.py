"""Read from vLLM's metrics or log how often the first, second, ... draft of a pass is accepted."""

import re
from collections import defaultdict
from pathlib import Path

from servetwin.workloads.errors import PolicyError, TraceError
from servetwin.workloads.files import open_text

_COUNTER = re.compile(
    r"^vllm:spec_decode_num_(drafts|accepted_tokens_per_pos)(?:_total)?(?:\{(.*)\})? (\S+)", re.M
)
_POSITION = re.compile(r'position="(\d+)"')
_LINE = re.compile(r"Drafted: (\d+) tokens, Per-position acceptance rate: ([\d., ]+), ")


def read_acceptance(path: Path) -> tuple[float, ...]:
    """Return the share of passes in which draft 1, 2, ... was accepted, of the whole text.

    It is what ``/metrics`` gives, or a log, whose lines count by their drafts. Raises
    ``PolicyError`` for a file without either.
    """
    try:
        with open_text(path) as file:
            text = file.whole()
    except TraceError as error:
        raise PolicyError(str(error)) from error
    passes, accepted = 0.0, defaultdict[int, float](float)
    for name, labels, count in _COUNTER.findall(text):
        if position := _POSITION.search(labels):
            accepted[int(position[1])] += float(count)
        elif name == "drafts":
            passes += float(count)
    for drafted, rates in () if accepted else _LINE.findall(text):
        shares = [float(rate) for rate in rates.split(", ")]
        passes += int(drafted) / len(shares)
        for place, share in enumerate(shares):
            accepted[place] += int(drafted) / len(shares) * share
    if not passes or not accepted:
        raise PolicyError(
            f"{path}: no passes are counted; it must be vLLM's /metrics with spec_decode counters, "
            "or its log with lines of 'Per-position acceptance rate'"
        )
    return tuple(accepted[place] / passes for place in sorted(accepted))
