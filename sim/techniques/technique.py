"""The base of every acceleration technique: a change of a setup, with its formula and its price."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.entry import FrozenModel
from servetwin.sim.catalogue.layers import Recurrence
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.errors import PolicyError, ShapeError
from servetwin.workloads.generators.arrivals import PoissonArrivals
from servetwin.workloads.generators.generate import WorkloadSpec, generate
from servetwin.workloads.generators.lengths import IndependentLengths, LognormalTokens
from servetwin.workloads.program.package import shipped_json
from servetwin.workloads.request import BLOCK_TOKENS, Request
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import at_rate

_APART_S = 1e5
_Tokens = Annotated[int, Field(ge=1, le=10_000_000)]
_Requests = Annotated[int, Field(ge=1, le=1_000_000)]


@dataclass(frozen=True, slots=True)
class Experiment:
    """Log-normal lengths of these means, and how many requests meet each load.

    ``alone``: one after the other, each on an idle server. ``loaded``: Poisson arrivals at
    ``load`` of what the server without the technique can sustain. ``saturated``: all at once.
    The first ``shared_tokens`` of all prompts are the same; ``samples`` answers are wanted to each.
    """

    prompt_tokens: _Tokens = 512
    output_tokens: _Tokens = 128
    spread: Annotated[float, Field(ge=0, le=100)] = 0.4
    longest_tokens: _Tokens = 2048
    load: Annotated[float, Field(gt=0, le=1_000, allow_inf_nan=False)] = 0.7
    alone: _Requests = 8
    loaded: _Requests = 120
    saturated: _Requests = 240
    shared_tokens: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    samples: Annotated[int, Field(ge=1, le=10_000)] = 1

    def describe(self) -> str:
        """Describe the experiment for the caption of a table."""
        shared = f", {self.shared_tokens} of them the same in all" if self.shared_tokens else ""
        samples = f", {self.samples} answers to each" if self.samples > 1 else ""
        return (
            f"prompts of {self.prompt_tokens} tokens{shared} and answers of {self.output_tokens} "
            f"(means, log-normal, CV {self.spread:g}){samples}; load {self.load:.0%} of what the "
            "server without the technique sustains"
        )

    def one_at_a_time(self, seed: int) -> Trace:
        """Return requests so far apart that none meets another."""
        requests = self._requests(self.alone, seed)
        return _trace(
            replace(request, arrival_s=place * _APART_S) for place, request in enumerate(requests)
        )

    def all_at_once(self, seed: int) -> Trace:
        """Return all requests, each at second 0."""
        return _trace(replace(r, arrival_s=0.0) for r in self._requests(self.saturated, seed))

    def steady(self, seed: int, sustained_per_s: float) -> Trace:
        """Return a Poisson stream at ``load`` of ``sustained_per_s``."""
        return at_rate(_trace(self._requests(self.loaded, seed)), self.load * sustained_per_s)

    def _requests(self, count: int, seed: int) -> list[Request]:
        prompts, outputs = self._tokens(self.prompt_tokens), self._tokens(self.output_tokens)
        lengths = IndependentLengths(prompts, outputs)
        trace = generate(WorkloadSpec(count, PoissonArrivals(1.0), lengths), seed)
        return [self._shaped(request) for request in trace]

    def _tokens(self, mean: int) -> LognormalTokens:
        return LognormalTokens.from_mean(mean, self.spread, max_tokens=self.longest_tokens)

    def _shaped(self, request: Request) -> Request:
        blocks = self.shared_tokens // BLOCK_TOKENS
        return replace(
            request,
            samples=self.samples,
            prompt_tokens=self.shared_tokens + request.prompt_tokens,
            prefix_block_ids=tuple(range(blocks)),
            block_tokens=BLOCK_TOKENS if blocks else None,
        )


def _trace(requests: Iterable[Request]) -> Trace:
    return Trace(tuple(requests), "experiment")


# Contexts long enough for what depends on them to show.
LONG_PROMPTS = Experiment(3000, 128, longest_tokens=3900, loaded=60, saturated=60)


# The largest whole and other parameters: more would overflow.
_MOST_COUNT, _MOST_QUANTITY = 10_000_000, 1e9

_PACKAGE = __name__.rpartition(".")[0]
_FACTS: dict[str, dict[str, Any]] = shipped_json("sim/techniques/techniques.json")
# The class of every shipped technique (``module:Class``), by name.
SHIPPED = {name: f"{_PACKAGE}.{facts.pop('class')}" for name, facts in _FACTS.items()}
_NAMES = {place: name for name, place in SHIPPED.items()}

Family = Literal["numbers", "attention", "kernels", "parallel", "decoding", "serving", "memory"]


class Technique(FrozenModel):
    """One technique; its fields are its parameters, validated when it is built.

    ``kind``: an ``algorithm`` changes the model, a ``system`` technique keeps the model's answers.
    ``lossless``: the output tokens stay the same, up to rounding. By default a technique is a lossy
    algorithm; ``sim.techniques.quality`` has what that costs. ``formula`` is the core of the model
    of the technique, ``source`` the paper.
    ``experiment`` is the load that shows the effect of the technique where the default load does
    not. ``chooses`` names what of a server the technique chooses: two that choose the same exclude
    each other. A shipped technique has all of these but ``experiment`` in ``techniques.json``.
    """

    name: ClassVar[str]
    family: ClassVar[Family]
    kind: ClassVar[Literal["algorithm", "system"]] = "algorithm"
    lossless: ClassVar[bool] = False
    formula: ClassVar[str]
    source: ClassVar[str]
    experiment: ClassVar[Experiment | None] = None
    chooses: ClassVar[str | None] = None

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Give a shipped technique the attributes in ``techniques.json``."""
        if name := _NAMES.get(f"{cls.__module__}:{cls.__name__}"):
            for attribute, value in {"name": name, **_FACTS[name]}.items():
                setattr(cls, attribute, value)

    @field_validator("*")
    @classmethod
    def _require_possible(cls, value: object) -> object:
        """Refuse a number beyond all that is simulated."""
        most = _MOST_COUNT if isinstance(value, int) else _MOST_QUANTITY
        if isinstance(value, int | float) and value > most:
            raise ValueError(f"{value} is not possible; it must be at most {most:,.0f}")
        return value

    @abstractmethod
    def apply(self, setup: Setup) -> Setup:
        """Return ``setup`` with the technique on; one that has it already stays as it is.

        Raises ``PolicyError`` with the reason where the technique makes no sense there.
        """

    def off(self, setup: Setup) -> Setup:
        """Return ``setup`` with the opposite of the technique, which ``apply`` is compared with.

        By default ``setup`` itself: it has the technique only where ``apply`` gave it.
        """
        return setup

    def is_on(self, setup: Setup) -> bool:
        """Return whether ``setup`` has the technique, with the parameters that were given."""
        try:
            return self.apply(setup) == setup
        except PolicyError:
            return False

    def sides(self, base: Setup) -> tuple[Setup, Setup]:
        """Return ``base`` without the technique and with it: what every command compares.

        Raises ``PolicyError`` as ``apply`` and ``off`` do.
        """
        return self.off(base), self.apply(base)

    def note(self, setup: Setup) -> str:
        """Return what a user should know of the technique on ``setup``; empty where nothing is."""
        del setup
        return ""

    def is_given(self, parameter: str) -> bool:
        """Return whether the parameter was given, and not left at its default."""
        return parameter in self.model_fields_set

    def model_of(self, parameter: str) -> ModelShape:
        """Return the model that a parameter names; raise ``ShapeError`` that names both."""
        try:
            return find_model(getattr(self, parameter))
        except ShapeError as error:
            raise ShapeError(f"technique {self.name}: {parameter}: {error}") from error

    def refusal(self, reason: str) -> PolicyError:
        """Return the error that says why the technique makes no sense in a setup."""
        return PolicyError(f"{self.name}: {reason}")

    def require_softmax(self, setup: Setup) -> None:
        """Raise ``PolicyError`` where all layers of the model keep a constant state."""
        model = setup.deployment.model
        if all(isinstance(group.mixer, Recurrence) for group in model.layers):
            raise self.refusal(f"{model.name} has no softmax attention, only recurrent layers")
