"""The prompts of a load test as the client's own tokenizer counts them."""

from dataclasses import replace

from servetwin.loadtest.endpoint import Endpoint
from servetwin.workloads.generators.prompts import prompt_text
from servetwin.workloads.tokenizer import LocalTokenizer
from servetwin.workloads.trace import Trace


def counted_prompts(trace: Trace, endpoint: Endpoint, tokenizer: LocalTokenizer) -> Trace:
    """Return the trace with the length of each text that the endpoint was sent.

    Prompts of token ids are as long as the trace says.
    """
    if endpoint.prompt == "ids":
        return trace
    texts = [
        replace(r, prompt=prompt_text(r, endpoint.salt or "")) if r.prompt is None else r
        for r in trace
    ]
    return tokenizer.counted(replace(trace, requests=tuple(texts)))
