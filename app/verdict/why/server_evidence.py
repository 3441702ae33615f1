"""What the metrics of a server say of its settings: requests that ran, tokens of its KV memory."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from servetwin.app.verdict.measured_facts import MeasuredFacts

_LEAST_USAGE = 0.02
"""The share of the KV memory from which on its size can be told."""


def most_running(facts: MeasuredFacts) -> int:
    """Return the most requests that the server said it ran at once; 1 where it said nothing."""
    most = np.nan if facts.server is None else facts.server["running"].max()
    return 1 if np.isnan(most) else max(1, int(most))


def kv_tokens(facts: MeasuredFacts) -> npt.NDArray[np.float64]:
    """Return the size of the KV memory by each reading: tokens held / share used.

    A request holds its prompt and what came out of it, from its first token to its last. A reading
    while prompts are computed tells nothing, and none does where requests share prefixes: how many
    tokens they hold is not known then.
    """
    rows, server = facts.answered, facts.server
    if server is None or any(request.prefix_block_ids for request in facts.requests):
        return np.empty(0)
    columns = ("first_token_s", "last_token_s", "prompt_tokens", "output_tokens")
    first_s, last_s, prompts, outputs = (rows[name].to_numpy(float) for name in columns)
    at_s, usage = server["at_s"].to_numpy()[:, None], server["kv_usage"].to_numpy()
    done = (at_s - first_s) / np.maximum(last_s - first_s, 1e-9)
    decodes = (done >= 0) & (done < 1)
    held = np.where(decodes, prompts + outputs * done, 0.0).sum(axis=1)
    known = (usage > _LEAST_USAGE) & (held > 0) & (decodes.sum(axis=1) == server["running"])
    return np.asarray(held[known] / usage[known])


def server_notes(facts: MeasuredFacts) -> Iterator[str]:
    """Yield a line on the load of the server, and on its KV memory, by its own metrics."""
    server = facts.server
    if server is None or server[["running", "waiting", "kv_usage"]].isna().all(axis=None):
        return
    most = server.max()
    new = server["preemptions"].max() - server["preemptions"].min()
    told = {
        "{:.0f} requests running": most["running"],
        "{:.0f} waiting": most["waiting"],
        "{:.0%} of the KV memory used": most["kv_usage"],
        "{:.0f} preemptions": new,
    }
    shown = ", ".join(text.format(value) for text, value in told.items() if not np.isnan(value))
    sizes = kv_tokens(facts)
    size = f"; by the tokens it held it has {np.median(sizes):,.0f} KV tokens" if len(sizes) else ""
    yield f"the server's own metrics: at most {shown}{size}"
