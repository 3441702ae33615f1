"""The steps of a load test as its clients could tell them, where no log of the server has them.

The stamps of the tokens tell when a step ended and what it computed
(``sim.step_times.black_box_steps``); steps whose batch is ambiguous are left out. Times are wall
times: the speed of the machine is in them.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from servetwin.policies.batch import BatchShape
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.measured_parts import Pace
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.black_box_steps import ObservedRequest, read_intervals
from servetwin.sim.step_times.profile import StepTimeFit

STEP_KINDS = ("decode", "prompt", "mixed")
# Steps are compared in blocks of this length, longer than the machine keeps its speed.
BLOCK_S = 3.0
# The pace of a moment is that of the steps of a window: two tokens that a client reads at once
# make one step too short and its neighbour too long.
WINDOW_S = 1.0


def step_kind(shapes: Sequence[BatchShape]) -> str:
    """Return the kind of some steps (``STEP_KINDS``): decodes alone, prompts alone, or both."""
    if not any(shape.prefill_chunks for shape in shapes):
        return "decode"
    return "mixed" if any(shape.decode_sequences for shape in shapes) else "prompt"


def observed_frame(run: Run, policies: PolicyConfig, fit: StepTimeFit) -> pd.DataFrame:
    """Return the steps that the stamps of a load test tell (``steps_frame``), in wall time."""
    intervals = read_intervals(_answers(run), policies)
    steps = [(i.began_s, i.shapes, i.seconds) for i in intervals if not i.first_token]
    return steps_frame(steps, fit).assign(switches=0, beat_s=1.0)


def steps_frame(
    steps: Sequence[tuple[float, Sequence[BatchShape], float]], fit: StepTimeFit
) -> pd.DataFrame:
    """Return ``began_s``, ``block``, ``kind``, ``took_s`` and ``stated_s`` of steps.

    Each is when it began, its shapes, and what it took; ``stated_s`` is what the fit says, with its
    mean noise.
    """
    model, noise = fit.model(), float(np.mean(fit.noise))
    began_s = np.array([at_s for at_s, *_ in steps], dtype=np.float64)
    stated_s = [sum(float(model.seconds(one)[0]) for one in shapes) for _, shapes, _ in steps]
    return pd.DataFrame(
        {
            "began_s": began_s,
            "block": ((began_s - began_s[:1]) // BLOCK_S).astype(int),
            "kind": [step_kind(shapes) for _, shapes, _ in steps],
            "took_s": [took_s for *_, took_s in steps],
            "stated_s": noise * np.array(stated_s, dtype=np.float64),
        }
    )


def busy_s(run: Run) -> float:
    """Return the seconds in which some request had its first token and not its last."""
    rows = run.requests.dropna(subset=["last_token_s"]).sort_values("first_token_s")
    first_s, last_s = rows["first_token_s"].to_numpy(float), rows["last_token_s"].to_numpy(float)
    earlier_s = np.append(-np.inf, np.maximum.accumulate(last_s)[:-1])
    return float(np.maximum(0.0, last_s - np.maximum(first_s, earlier_s)).sum())


def _answers(run: Run) -> list[ObservedRequest]:
    rows = run.requests[run.requests["status"] == "finished"].sort_values("sent_s", kind="stable")
    columns = (rows[name] for name in ("sent_s", "prompt_tokens", "chunk_s", "cached_tokens"))
    return [
        ObservedRequest(sent_s, int(prompt), tuple(stamps_s.tolist()), int(cached))
        for sent_s, prompt, stamps_s, cached in zip(*columns, strict=True)
    ]


def observed_pace(frame: pd.DataFrame, noise: float) -> Pace:
    """Return the pace of the steps of ``observed_frame``, by windows; ``noise`` is in its times."""
    moments_s, paces = {}, {}
    for has_prompts, steps in frame.groupby(frame["kind"] != "decode"):
        windows = steps.groupby(steps["began_s"] // WINDOW_S)
        sums = windows[["took_s", "stated_s"]].sum()
        moments_s[bool(has_prompts)] = windows["began_s"].mean().tolist()
        paces[bool(has_prompts)] = (noise * sums["took_s"] / sums["stated_s"]).tolist()
    return Pace(moments_s, paces)
