"""Chunked prefill (Sarathi-Serve, OSDI 2024): prompts are cut to fill a token budget."""

from servetwin.policies.schedulers.iteration_level import IterationBatching
from servetwin.workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class ChunkedPrefill(IterationBatching):
    """Every step has at most ``token_budget`` rows: all decodes, then pieces of prompts.

    No prompt, however long, stalls the decodes for longer than one step of the budget.
    """
