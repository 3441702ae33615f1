"""The tensors that a step of the bundled engine allocates, by torch's profiler."""

import json
import tempfile
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from servetwin.engine.core.runner import Runner
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import model_preset
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import TokenState
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.sequence import Sequence


class Measured(NamedTuple):
    """The most bytes that lived at once, and the most rows of a step."""

    peak_bytes: int
    most_rows: int


def measured(
    model: str,
    config: PolicyConfig,
    prompts: list[int],
    output: int,
    *,
    temperature: float = 0.0,
    flash_attention: bool = True,
) -> Measured:
    """Run all prompts on a new engine, from its weights to the last token.

    Weights are not prepacked: oneDNN's own memory is in no figure of torch.
    """
    found: list[int] = []

    def work() -> None:
        layout = build_scheduler(config).memory.layout
        runner = Runner(
            model_preset(model),
            Computation(device="cpu", prepack=False),
            layout=layout,
            kv_tokens=config.kv_tokens,
        )
        found.extend(_rows_of_steps(config, runner, prompts, output, temperature))

    if flash_attention:
        return Measured(_peak_bytes(work), max(found))
    with sdpa_kernel(SDPBackend.MATH):
        return Measured(_peak_bytes(work), max(found))


def _peak_bytes(work: Callable[[], None]) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    changes = [event for event in events if event.get("name") == "[memory]"]
    changes.sort(key=lambda event: event["ts"])
    most: int = max(accumulate(event["args"]["Bytes"] for event in changes))
    return most


def _rows_of_steps(
    config: PolicyConfig, runner: Runner, prompts: list[int], output: int, temperature: float
) -> list[int]:
    scheduler, states, rows = build_scheduler(config), {}, []
    params = SamplingParams(max_tokens=output, min_tokens=output, temperature=temperature)
    for number, prompt in enumerate(prompts):
        name = f"request {number}"
        assert scheduler.add(Sequence(name, 0.0, prompt, max_tokens=output)) is None
        states[name] = TokenState([1] * prompt, params)
    while (batch := scheduler.schedule(0.0)) is not None:
        for entry in batch.entries:
            scheduler.memory.table(entry.seq, entry.start + entry.tokens)
        for name, tokens in runner.execute(batch, states).items():
            states[name].token_ids += (token.token_id for token in tokens)
        rows.append(sum(entry.rows for entry in batch.entries))
        scheduler.complete(batch)
    return rows
