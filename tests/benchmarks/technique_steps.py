"""Single steps of the engine without and with techniques, in one process, beside their formulas.

    python -m tests.benchmarks.technique_steps TECHNIQUE ...

Both sides take turns; the shortest of many repetitions counts, which other programs cannot shorten.
The rows are those of the table ``technique-steps`` in docs/evidence/effects.yml.
"""

import sys
import time
from dataclasses import dataclass, replace

from servetwin.app.scenario.options.engine import EngineChoice
from servetwin.app.verdict.effects.prediction import ChangedStepTime, fit_calibration
from servetwin.app.verdict.effects.sides import Sides, measured_hardware, sides_of
from servetwin.engine.core.runner import Runner
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import TokenState, token_state
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.batch import Batch, BatchShape, ScheduledSequence
from servetwin.policies.config import PolicyConfig
from servetwin.policies.sequence import Sequence
from servetwin.sim.step_times.protocol import FloatArray
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.techniques.registry import Toggles, find_technique

MODEL, CONTEXT, BLOCK_TOKENS, REPEATS = "small", 400, 16, 16
DECODES, PROMPTS = (1, 4, 8), (16, 64, 128, 256)
SHAPES = [
    *(BatchShape(n, n * (CONTEXT + 1), n, (), decode_contexts=(CONTEXT + 1,) * n) for n in DECODES),
    *(BatchShape(0, 0, 0, ((0, n),)) for n in PROMPTS),
]


class Known:
    """Step times that were measured, by shape."""

    def __init__(self, seconds: dict[BatchShape, float]) -> None:
        self._seconds = seconds

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the measured time."""
        import numpy as np

        return np.full(steps, self._seconds[shape])


@dataclass
class Engine:
    """A runner with eight sequences in its memory."""

    runner: Runner
    sequences: list[Sequence]
    states: dict[str, TokenState]

    @classmethod
    def of(cls, options: ServeOptions) -> "Engine":
        """Start the engine of ``options`` and compute the contexts."""
        blocks = -(-CONTEXT // BLOCK_TOKENS) + 1
        tokens = max(DECODES) * blocks * BLOCK_TOKENS
        runner = Runner(
            options.model_config(), options.computation, layout="paged", kv_tokens=tokens
        )
        found = cls(runner, [], {})
        for number in range(max(DECODES)):
            sequence = Sequence(str(number), 0.0, CONTEXT, max_tokens=8)
            sequence.region_start = 0
            sequence.blocks = list(range(number * blocks, (number + 1) * blocks))
            found.sequences.append(sequence)
            found.states[str(number)] = token_state(
                [5] * (CONTEXT + 8), SamplingParams(max_tokens=8)
            )
            runner.execute(
                Batch([ScheduledSequence(sequence, 0, CONTEXT, yields_token=True)]), found.states
            )
        return found

    def step_s(self, shape: BatchShape) -> float:
        """Return how long one step of a shape takes now."""
        chunks = [(0, n) for _, n in shape.prefill_chunks] or [
            (CONTEXT, 1)
        ] * shape.decode_sequences
        entries = [
            ScheduledSequence(sequence, start, tokens, yields_token=True)
            for sequence, (start, tokens) in zip(self.sequences, chunks, strict=False)
        ]
        batch = Batch(entries)
        began = time.perf_counter()
        self.runner.execute(batch, self.states)
        return time.perf_counter() - began


def row(sides: Sides) -> str:
    """Return the row of a technique: predicted and measured ratio of each shape."""
    engines = Engine.of(sides.without.options), Engine.of(sides.with_it.options)
    best: list[dict[BatchShape, float]] = [dict.fromkeys(SHAPES, 1e9), dict.fromkeys(SHAPES, 1e9)]
    for repeat in range(REPEATS):
        for shape in SHAPES:
            for side in (0, 1) if repeat % 2 else (1, 0):
                best[side][shape] = min(best[side][shape], engines[side].step_s(shape))
    before, after = sides.without.setup.deployment, sides.with_it.setup.deployment
    efficiency = fit_calibration(before, Known(best[0]), SHAPES)
    without, with_it = (
        roofline_step_time(replace(side, efficiency=efficiency)) for side in (before, after)
    )
    predicted = ChangedStepTime(Known(best[0]), without, with_it)
    cells = []
    for shape in SHAPES:
        ratio = float(predicted.seconds(shape)[0]) / best[0][shape]
        cells.append(f"{ratio:.2f} / {best[1][shape] / best[0][shape]:.2f}")
    return f"| `{sides.name}` | {' | '.join(cells)} |"


def main(names: list[str]) -> None:
    """Print a row for each technique, as it is done."""
    options = EngineChoice(MODEL).options(PolicyConfig(max_seqs=max(DECODES)))
    hardware = measured_hardware(options.computation.threads)
    for name in names:
        found = row(sides_of(options, find_technique(name), Toggles(), hardware))
        sys.stdout.write(found + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
