"""Profiles: the result of calibrating one engine on one machine, as a JSON file."""

import json
from collections.abc import Callable
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVLayout
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.extrapolation import ExtrapolatedStepTime
from servetwin.sim.step_times.fit import Fit
from servetwin.sim.step_times.provenance import (
    Calibration,
    MeasuredRange,
    Origin,
    Source,
)
from servetwin.sim.step_times.step_time import (
    BATCH_PAIRS,
    FEATURES,
    ApiLatency,
    LinearStepTime,
    NoiseSample,
    StepTime,
)
from servetwin.workloads.errors import PolicyError, ProfileError, did_you_mean
from servetwin.workloads.files import Drafts, document

# The seconds of a feature; times far beyond a million could not be counted in units.
Seconds = Annotated[float, Field(le=1e6)]
Factor = Annotated[float, Field(le=1e6)]
# The largest value of a feature, such as pairs of positions.
Work = Annotated[float, Field(ge=-1e18, le=1e18)]


_ROUNDED = (
    "coefficients", "draws", "noise", "noise_correlation", "drift", "held_out_error",
)  # fmt: skip
_rounded = np.vectorize(lambda value: float(f"{value:.6g}"), otypes=[float])


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)


class StepTimeFit(_StrictModel):
    """A fitted step-time model (``sim.step_times.fit.Fit``), by feature name."""

    coefficients: dict[str, Annotated[Seconds, Field(ge=-1e6)]]
    draws: list[list[Seconds]] = Field(default_factory=list)
    noise: list[Factor] = Field(default_factory=lambda: [1.0])
    noise_correlation: float = Field(default=0.0, ge=0, lt=1)
    drift: Factor = 0.0
    held_out_error: float | None = None
    ranges: dict[str, Work] = Field(default_factory=dict)
    steps: int = 0

    @field_validator("coefficients")
    @classmethod
    def _known_features(cls, value: dict[str, float]) -> dict[str, float]:
        LinearStepTime.of(value)
        return value

    @model_validator(mode="after")
    def _possible_uncertainty(self) -> "StepTimeFit":
        if negative := [name for name, value in self.coefficients.items() if value < 0]:
            raise ValueError(
                f"coefficients.{negative[0]}: {self.coefficients[negative[0]]:g} s is negative; a "
                "step never gets shorter by more work"
            )
        features = self._features_of_draws()
        widths = (len(features), BATCH_PAIRS)  # older profiles end before this feature
        wrong = [n for n, draw in enumerate(self.draws) if len(draw) not in widths]
        if wrong:
            raise ValueError(
                f"draws.{wrong[0]}: {len(self.draws[wrong[0]])} values, not {len(features)}, one "
                "for each feature of a calibration"
            )
        if any(value < 0 for draw in self.draws for value in draw):
            raise ValueError("draws: a negative value; a step never gets shorter by more work")
        if not self.noise or min(self.noise) < 0 or self.drift < 0:
            raise ValueError("noise and drift: at least one factor, and none negative")
        return self

    @field_validator("ranges")
    @classmethod
    def _known_ranges(cls, value: dict[str, float]) -> dict[str, float]:
        LinearStepTime.of(value)
        if wrong := [name for name, most in value.items() if most < 0]:
            raise ValueError(f"{wrong[0]}: the largest value measured cannot be {value[wrong[0]]}")
        return value

    @classmethod
    def of(cls, fit: Fit) -> "StepTimeFit":
        """Return a fit in the form of the file, rounded to six digits."""
        figures = {name: _rounded(getattr(fit, name)).tolist() for name in _ROUNDED}
        by_name = dict(zip(FEATURES, figures.pop("coefficients"), strict=True))
        return cls(coefficients=by_name, ranges=fit.ranges, steps=fit.steps, **figures)

    def model(self) -> LinearStepTime:
        """Return the model with the fitted coefficients."""
        return LinearStepTime.of(self.coefficients)

    def scaled(self, factor: float) -> "StepTimeFit":
        """Return the fit of an engine that computes ``factor`` times as slowly."""
        update = {
            "coefficients": {name: factor * value for name, value in self.coefficients.items()},
            "draws": [[factor * value for value in row] for row in self.draws],
        }
        return self.model_copy(update=update)

    def drawn(self, rng: np.random.Generator) -> LinearStepTime:
        """Return the model of a random bootstrap fit (or the fitted one), times a random drift."""
        place, drift = self.draw(rng)
        return self.model_of(place).scaled(drift)

    def draw(self, rng: np.random.Generator) -> tuple[int | None, float]:
        """Return the place of a random bootstrap fit (None: there are none), and a random drift."""
        drift = max(0.0, 1 + self.drift * rng.standard_normal())
        return (int(rng.integers(len(self.draws))) if self.draws else None), drift

    def model_of(self, place: int | None) -> LinearStepTime:
        """Return the model of a bootstrap fit, or the fitted one."""
        if place is None:
            return self.model()
        by_name = dict(zip(self._features_of_draws(), self.draws[place], strict=False))
        return LinearStepTime.of(by_name)

    def _features_of_draws(self) -> tuple[str, ...]:
        """Return the features of each draw: those of a calibration by its steps, or its own."""
        return FEATURES if set(self.coefficients) <= set(FEATURES) else tuple(self.coefficients)

    def drawn_extrapolated(self, rng: np.random.Generator, factor: float) -> StepTime:
        """Return a draw as ``drawn``; beyond the measured ranges it costs ``factor`` as much."""
        return ExtrapolatedStepTime(self.drawn(rng), MeasuredRange.of(self.ranges), factor)

    def is_certain(self) -> bool:
        """Return whether all draws are equal: the uncertainty was not measured."""
        return not self.draws and not self.drift and set(self.noise) == {1.0}

    def noise_factors(self) -> NoiseSample:
        """Return quantiles of measured / fitted step durations, and their serial correlation."""
        return NoiseSample(np.array(self.noise), self.noise_correlation)


class ApiLatencyFit(_StrictModel):
    """Latency of the HTTP process (``sim.step_times.step_time.ApiLatency``), in seconds."""

    request_s: Seconds = Field(default=0.0, ge=0)
    request_per_token_s: Seconds = Field(default=0.0, ge=0)
    chunk_s: Seconds = Field(default=0.0, ge=0)
    chunk_per_sequence_s: Seconds = Field(default=0.0, ge=0)

    def model(self) -> ApiLatency:
        """Return the latency as the simulator uses it."""
        return ApiLatency(**self.model_dump())


class Profile(_StrictModel):
    """One engine on one machine: step time by KV layout, API latency, resolved configuration.

    ``origin`` says where the step times come from. ``policies`` is the engine's resolved
    ``PolicyConfig``; its ``kv_tokens`` is the KV memory that the engine really had. ``beat_s`` is
    how long the reference beat took on the machine at whose speed the step times are stated; None
    where none was timed. ``ended_early`` is why the calibration was cut off, if it was.
    """

    schema_: Literal["servetwin-profile/1"] = Field(alias="schema", default="servetwin-profile/1")
    name: str
    origin: Origin
    machine: dict[str, Any]
    engine: dict[str, Any]
    policies: dict[str, Any]
    layouts: dict[KVLayout, StepTimeFit]
    api: ApiLatencyFit = ApiLatencyFit()
    beat_s: Annotated[float, Field(gt=0, le=1e6)] | None = None
    ended_early: str | None = None

    def step_time(self, layout: KVLayout) -> StepTimeFit:
        """Return the fit for a KV layout.

        Raises ``ProfileError`` if that layout was not measured.
        """
        if layout not in self.layouts:
            raise ProfileError(
                f"profile {self.name}: {layout} KV memory was not measured, only "
                f"{', '.join(self.layouts)}; calibrate that layout"
            )
        return self.layouts[layout]

    def with_policies(self, config: PolicyConfig) -> "Profile":
        """Return the profile of the same engine under other policies."""
        return self.model_copy(update={"policies": config.as_dict()})

    def scaled(self, factor: float) -> "Profile":
        """Return the profile of an engine whose steps take ``factor`` times as long."""
        layouts = {layout: fit.scaled(factor) for layout, fit in self.layouts.items()}
        return self.model_copy(update={"layouts": layouts})

    def without_noise(self) -> "Profile":
        """Return the profile of an engine all of whose steps have the mean noise."""
        layouts = {
            layout: fit.model_copy(update={"noise": [float(np.mean(fit.noise))]})
            for layout, fit in self.layouts.items()
        }
        return self.model_copy(update={"layouts": layouts})

    def is_certain(self) -> bool:
        """Return whether all draws of every layout are equal."""
        return all(fit.is_certain() for fit in self.layouts.values())

    def source(self, layout: KVLayout) -> Source:
        """Return the provenance of the step times for a KV layout."""
        ranges = self.step_time(layout).ranges
        if not ranges:
            return Source(origin=self.origin)
        return Calibration(self.name, MeasuredRange.of(ranges), origin=self.origin)

    def describe(self) -> list[str]:
        """Return name, origin, model and machine, as lines of a report."""
        machine = self.machine.get("processor") or self.machine.get("endpoint", "unknown machine")
        engine = f"{self.engine.get('model', '?')} on {machine}"
        ended = f"; ended early: {self.ended_early}" if self.ended_early else ""
        return [f"profile {self.name} ({self.origin}: {engine}{ended})"]

    @property
    def acceptance(self) -> None:
        """None: a profile has no drafts."""

    def check(self, run: Run, replicas: range) -> None:
        """Accept every run: a measured engine has no computed bounds."""

    def policy_config(self) -> PolicyConfig:
        """Return the resolved policies of the engine.

        Raises ``ProfileError`` if the profile has settings that do not exist.
        """
        try:
            return PolicyConfig(**self.policies)
        except (TypeError, PolicyError) as error:
            raise ProfileError(f"profile {self.name}: field 'policies': {error}") from error

    def kv_bytes_per_token(self) -> float:
        """Return the size of the keys and values of one token, in bytes.

        Raises ``ProfileError`` if the profile does not have it.
        """
        engine = self.engine
        if not (engine.get("kv_bytes") and engine.get("kv_tokens")):
            raise ProfileError(
                f"profile {self.name}: field 'engine': kv_bytes and kv_tokens are needed to move "
                "keys and values over a link"
            )
        return float(engine["kv_bytes"]) / float(engine["kv_tokens"])

    def as_json(self) -> str:
        """Return the JSON text that ``load_profile`` reads."""
        return json.dumps(self.model_dump(by_alias=True), indent=1) + "\n"

    def save(self, path: Path) -> None:
        """Write the profile as JSON. Raises ``ProfileError`` if that is not possible."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with Drafts() as drafts:
                drafts.of(path).write_text(self.as_json())
        except OSError as error:
            raise ProfileError(f"{path}: the profile cannot be written ({error})") from error


def load_profile(name: str) -> Profile:
    """Return a shipped profile by name, or another by path (``*.json``).

    Raises ``ProfileError`` naming the file and key that are wrong, or the nearest shipped name.
    """
    shipped = shipped_profiles()
    read: Callable[[], str | bytes]
    if name in shipped:
        read = resources.files("servetwin.sim").joinpath(f"profiles/{name}.json").read_text
    elif name.endswith(".json"):
        read = partial(document, Path(name))
    else:
        hint = did_you_mean(name, shipped, f"shipped are {', '.join(shipped)}")
        raise ProfileError(f"no profile {name!r}; {hint} (or give the path of a .json file)")
    try:
        return Profile.model_validate_json(read())
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{name}: the profile cannot be read ({error})") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "file"
        message = first["msg"].removeprefix("Value error, ")
        raise ProfileError(f"{name}: field {key!r}: {message}") from error


def shipped_profiles() -> list[str]:
    """Return the names of the profiles that come with the package."""
    folder = resources.files("servetwin.sim").joinpath("profiles")
    return sorted(p.name.removesuffix(".json") for p in folder.iterdir() if p.name[-5:] == ".json")
