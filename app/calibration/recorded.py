"""Calibrate from a recorded run: step times, what the log identifies, and what it does not."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from servetwin.loadtest.recorded.formats import is_inside_engine
from servetwin.loadtest.recorded.recorded_run import RecordedRun
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.stamp_fit import FITTED, REQUEST_S, StampFit, fit_stamps
from servetwin.sim.records.metrics import LATENCIES
from servetwin.sim.records.run import Run, machine_facts
from servetwin.sim.step_times.profile import ApiLatencyFit, Profile, StepTimeFit
from servetwin.workloads.errors import LoadTestError

# Finished requests without which the stamps say too little.
FEWEST = 50


@dataclass(frozen=True, slots=True)
class RecordedCalibration:
    """A fit to the stamps of the first requests of a run, and its error on the later ones.

    ``held_out`` and ``whole`` are the relative errors of the mean latencies, of the requests after
    the fitted ones and of all. ``misfit`` is the relative error of TPOT that stays in groups of
    neighbouring requests: what no coefficient explains, so every draw has as much of it.
    ``most_decodes`` is the largest batch that the log covers.
    """

    fit: StampFit
    fitted: int
    requests: int
    held_out: Mapping[str, float]
    whole: Mapping[str, float]
    misfit: float
    most_decodes: int
    evidence: tuple[str, ...]
    config: PolicyConfig

    def profile(self, name: str, recorded: RecordedRun, model: str | None) -> Profile:
        """Return the profile of the server, with what is not known in ``engine``."""
        fit = self.fit
        layout = build_scheduler(self.config).memory.layout
        errors = [abs(error) for error in (self.held_out or self.whole).values()]
        others = "recorded_by" in recorded.run.scenario
        return Profile(
            name=name,
            origin="measured by others" if others else "measured here",
            machine={
                "endpoint": str(recorded.run.scenario.get("trace")),
                "fitted": machine_facts(),
            },
            engine={
                "model": model or "?",
                "recorded_by": recorded.run.scenario.get("recorded_by", "load test"),
                "fitted_requests": self.fitted,
                "identified": fit.identified,
                "not_identified": [n for n in fit.deviations if n not in fit.identified],
            },
            policies=self.config.as_dict(),
            layouts={
                layout: StepTimeFit(
                    coefficients={name: fit.coefficients[name] for name in FITTED},
                    draws=[list(draw[: len(FITTED)]) for draw in fit.draws],
                    drift=self.misfit,
                    held_out_error=float(np.median(errors)) if errors else None,
                    ranges=_ranges(fit.run),
                    steps=int(fit.run.steps["steps"].sum()),
                )
            },
            api=ApiLatencyFit(request_s=fit.coefficients.get(REQUEST_S, 0.0)),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return what was found, for JSON."""
        return {
            "fitted_requests": self.fitted,
            "requests": self.requests,
            "simulations": self.fit.simulations,
            "coefficients": dict(self.fit.coefficients),
            "log_deviations": dict(self.fit.deviations),
            "identified": self.fit.identified,
            "singular_values": list(self.fit.singular_values),
            "held_out_errors": dict(self.held_out),
            "whole_run_errors": dict(self.whole),
            "misfit": self.misfit,
            "most_decodes": self.most_decodes,
            "evidence": list(self.evidence),
        }


def calibrate_recorded(
    recorded: RecordedRun,
    config: PolicyConfig,
    *,
    until: float = 1.0,
    prior: Mapping[str, float] | None = None,
    seed: int = 0,
    on_simulation: Callable[[int], None] = lambda done: None,
) -> RecordedCalibration:
    """Fit the step times of a server under ``config`` to its recorded stamps.

    Only the stamps of the first ``until`` of the requests are fitted; lengths and arrivals of all
    are the load. Raises ``LoadTestError`` for a run that says too little.
    """
    known = _known(recorded.run)
    fitted = known.iloc[: max(1, round(until * len(known)))]
    if len(fitted) < FEWEST:
        raise LoadTestError(
            f"--recorded: {len(fitted)} finished requests with times; a calibration needs at least "
            f"{FEWEST}, better 150"
        )
    fit = fit_stamps(
        recorded.trace,
        config,
        fitted,
        prior=prior,
        with_api=not is_inside_engine(recorded.run),
        seed=seed,
        on_simulation=on_simulation,
    )
    later, most_decodes = known.iloc[len(fitted) :], int(fit.run.steps["decode_sequences"].max())
    return RecordedCalibration(
        fit,
        len(fitted),
        len(known),
        _errors(fit.run, later),
        _errors(fit.run, known),
        _misfit(fit.run, fitted),
        most_decodes,
        tuple(_evidence(recorded, config, fit, most_decodes)),
        config,
    )


def _known(run: Run) -> pd.DataFrame:
    """Return the finished requests with any latency, in order of arrival."""
    finished = run.requests[run.requests["status"] == "finished"]
    known = finished[finished[[*LATENCIES]].notna().any(axis=1)]
    return known.sort_values("scheduled_s", kind="stable").reset_index(drop=True)


def _errors(predicted: Run, measured: pd.DataFrame) -> dict[str, float]:
    if measured.empty:
        return {}
    ours = predicted.requests.set_index("request_id").loc[measured["request_id"]]
    both = {name: (ours[name].mean(), measured[name].mean()) for name in LATENCIES}
    return {name: float(p / m - 1) for name, (p, m) in both.items() if m > 0}


def _misfit(predicted: Run, measured: pd.DataFrame) -> float:
    """Return the root mean square, over groups of neighbours, of the mean error of TPOT."""
    ours = predicted.requests.set_index("request_id").loc[measured["request_id"], "tpot_s"]
    errors = np.log(ours.to_numpy(float) / measured["tpot_s"].to_numpy(float))
    errors = errors[np.isfinite(errors)]
    if not len(errors):
        return 0.0
    groups = np.array_split(errors, max(1, round(math.sqrt(len(errors)))))
    return float(np.sqrt(np.mean([np.mean(group) ** 2 for group in groups])))


def _ranges(run: Run) -> dict[str, float]:
    """Return the largest value of the features that the fitted run reached."""
    steps = run.steps
    rows = float(steps["rows"].max())
    edges = [int(name[10:]) for name in FITTED if name.startswith("rows_from_")]
    segments = {
        f"rows_from_{low}": max(0.0, min(rows, high) - low)
        for low, high in zip(edges, [*edges[1:], np.inf], strict=True)
    }
    last = steps["decode_context_tokens"] + steps["decode_sequences"] * (steps["steps"] - 1)
    return {
        "decode_sequences": float(steps["decode_sequences"].max()),
        "prefill_chunks": float(steps["prefill_chunks"].max()),
        **segments,
        "decode_context_tokens": float(last.max()),
        "prefill_pairs": float(steps["prefill_pairs"].max()),
    }


def _evidence(
    recorded: RecordedRun, config: PolicyConfig, fit: StampFit, most_decodes: int
) -> list[str]:
    """Return what the log shows of limits, and what it cannot answer."""
    notes = []
    if most_decodes < config.max_seqs:
        notes.append(
            f"batches of more than {most_decodes} decodes were never seen: no what-if beyond that "
            "batch rests on this log"
        )
    running, with_queue = _most_running(recorded.run.requests)
    if running is not None:
        also = f", {with_queue} times with others waiting" if with_queue else ", never with a queue"
        notes.append(f"at most {running} requests ran at once{also} (max_seqs {config.max_seqs})")
    if lost := int(fit.run.requests["preemptions"].sum()):
        notes.append(
            f"{lost} preemptions simulated: kv_tokens {config.kv_tokens} limited the batch"
        )
    return notes


def _most_running(requests: pd.DataFrame) -> tuple[int | None, int]:
    """Return the most requests that ran at once, and how often as many ran while others waited.

    (None, 0) where the log does not say when requests were scheduled.
    """
    finished = requests[requests["queue_s"].notna() & requests["last_token_s"].notna()]
    if finished.empty:
        return None, 0
    starts = (finished["scheduled_s"] + finished["queue_s"]).to_numpy(float)
    ends, arrivals = (finished[n].to_numpy(float) for n in ("last_token_s", "scheduled_s"))
    started = np.sort(starts)
    running = np.array(
        [np.searchsorted(started, at, "right") - np.sum(ends <= at) for at in started]
    )
    most = int(running.max())
    at_most = started[running == most]
    waiting = [int(np.sum((arrivals < at) & (starts > at))) for at in at_most]
    return most, sum(count > 0 for count in waiting)
