"""Any server's step times as a profile of coefficients, which needs no table at run time."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import product

import numpy as np

from servetwin.policies.batch import BatchShape
from servetwin.policies.build import build_scheduler
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.run import machine_facts
from servetwin.sim.step_times.fit import robust_nnls
from servetwin.sim.step_times.profile import ApiLatencyFit, Profile, StepTimeFit
from servetwin.sim.step_times.step_time import (
    FEATURES,
    FloatArray,
    LinearStepTime,
    StepTime,
    features,
)
from servetwin.sim.step_times.tables.interpolate import HeldOutError

Chunks = tuple[tuple[int, int], ...]
_SHAPES = 400
_MOST_DECODES, _MOST_ROWS, _LONGEST = 256, 2048, 8192


def converted_profile(
    name: str, scenario: Scenario, model: str, hardware: str
) -> tuple[Profile, HeldOutError]:
    """Return the profile of a scenario's server, and its error on batches that no fit has seen.

    The uncertainty of the server's own step times becomes the profile's drift: one factor a
    replication.
    """
    server, config = scenario.profile, scenario.policies
    layout = build_scheduler(config).memory.layout
    source = server.step_time(layout)
    times = source.model()
    linear = LinearStepTime.of(linearised(times, FEATURES))
    shapes = _random_shapes()
    error = HeldOutError.of(_seconds(linear, shapes), _seconds(times, shapes))
    coefficients = dict(
        zip(FEATURES, (float(f"{c:.6g}") for c in linear.coefficients), strict=True)
    )
    rng = np.random.default_rng(0)
    shape = BatchShape(16, 16 * 1024, 16)
    drawn_s = [float(source.drawn(rng).seconds(shape)[0]) for _ in range(100)]
    profile = Profile(
        name=name,
        origin=server.origin,
        machine={"processor": hardware, "converted": machine_facts()["date"]},
        engine={
            "model": model,
            "source": " ".join(line.strip() for line in server.describe()),
            "change": "times of batches, fitted by the coefficients of this profile",
            "kv_tokens": config.kv_tokens,
            "kv_bytes": config.kv_tokens * server.kv_bytes_per_token(),
        },
        policies=config.as_dict(),
        api=ApiLatencyFit(**asdict(server.api.model())),
        layouts={
            layout: StepTimeFit(
                coefficients=coefficients,
                drift=float(f"{np.std(np.log(drawn_s)):.3g}"),
                held_out_error=float(f"{error.median:.3g}"),
                ranges=_ranges(),
            )
        },
    )
    return profile, error


def _ranges() -> dict[str, float]:
    """Return the largest features of the batches that the fit rests on."""
    largest = BatchShape(_MOST_DECODES, _MOST_DECODES * _LONGEST, 0, ((0, _MOST_ROWS),))
    names = ("decode_sequences", "decode_context_tokens")
    return {
        name: value
        for name, value in zip(FEATURES, features(largest), strict=True)
        if name in names or name.startswith("rows_from_")
    }


def _seconds(model: StepTime, shapes: list[BatchShape]) -> FloatArray:
    return np.array([float(model.seconds(shape)[0]) for shape in shapes])


def _random_shapes() -> list[BatchShape]:
    """Return batches of decodes, of chunks, and of both, the same ones at every call."""
    rng = np.random.default_rng(0)

    def upto(most: int) -> int:
        return int(np.exp(rng.uniform(0, np.log(most))))

    shapes = []
    for number in range(_SHAPES):
        decodes = upto(_MOST_DECODES) if number % 3 else 0
        context = 64 + upto(_LONGEST)
        chunks: Chunks = ()
        if number % 3 != 1:
            chunks = tuple(
                (upto(_LONGEST) * int(rng.integers(2)), 16 + upto(_MOST_ROWS // 2))
                for _ in range(rng.integers(1, 3))
            )
        shapes.append(_shape(decodes, context, chunks))
    return shapes


def _shape(decodes: int, context: int, chunks: Chunks) -> BatchShape:
    """Return a batch of decodes of equal contexts, and of chunks."""
    return BatchShape(
        decodes, decodes * context, decodes, chunks, longest_context=context if decodes else 0
    )


_DECODES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 192, 256)
_CONTEXTS = (64, 256, 1024, 4096)
_CHUNKS: tuple[Chunks, ...] = (
    (), ((0, 64),), ((0, 256),), ((0, 512), (0, 512)), ((0, 1024),), ((2048, 512),), ((0, 2048),),
)  # fmt: skip


def linearised(model: StepTime, features: Sequence[str]) -> dict[str, float]:
    """Return the coefficients, in seconds, with which a sum of features is nearest to a model.

    Nearest in relative terms, over batches of up to 256 decodes and 2,048 rows of prompts; none is
    negative.
    """
    shapes = [
        _shape(decodes, context, chunks)._replace(decode_contexts=(context,) * decodes)
        for chunks, decodes, context in product(_CHUNKS, _DECODES, _CONTEXTS)
        if decodes or chunks
    ]
    nothing = dict.fromkeys(features, 0.0)  # keeps the knots of all rows
    units = [LinearStepTime.of({**nothing, name: 1.0}) for name in features]
    matrix = np.array([_seconds(unit, shapes) for unit in units]).T
    coefficients = robust_nnls(np.ascontiguousarray(matrix), _seconds(model, shapes), rounds=1)
    return dict(zip(features, coefficients.tolist(), strict=True))
