"""A scenario as a file: workload, server, policies, cluster, SLO, seed; YAML that people edit.

Unknown keys are errors that name the key and the nearest known one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError

from app.scenarios import fit_to_trace
from app.servers import ServerOptions
from app.settings import with_settings
from app.workload_laws import ArrivalChoice, LengthChoice, PrefixChoice
from policies.config import PolicyConfig
from policies.presets import find_preset
from sim.metrics import SLO
from sim.scenario import ClusterConfig, Scenario
from sim.shapes.part import Count, Part, Positive
from workloads.errors import ServetwinError, did_you_mean
from workloads.generate import WorkloadSpec, generate
from workloads.lengths import IndependentLengths
from workloads.sample import sample_trace
from workloads.trace import Trace
from workloads.transform import at_rate, limit

GENERATED, SAMPLE = "generated", "sample"
PROFILE = "llama-3-8b-h100"
"""Where a scenario names no server."""

_BLOCK_TOKENS = 16
_PREFIX_ZIPF = 1.0
_GROUPS = 16


class ScenarioError(ServetwinError):
    """A scenario that cannot be read or built; the message names the key."""

    exit_code = 2


class Workload(Part):
    """Which requests come, and when.

    ``source`` is ``generated``, ``sample`` (the bundled trace) or the name of a trace that was
    given. A trace keeps its own rate where ``rate_per_s`` is None; ``requests`` are its first ones.
    The other fields shape a generated workload: ``cv`` of gamma or weibull gaps, log-normal lengths
    by mean and CV, and ``shared_prefix_tokens`` that each prompt has in common with its group.
    """

    source: str = GENERATED
    requests: Count = 2_000
    rate_per_s: Positive | None = 10.0
    arrivals: Literal["constant", "poisson", "gamma", "weibull", "mmpp2"] = "poisson"
    cv: Positive = 1.2
    prompt_tokens: Count = 496
    prompt_cv: Positive = 1.0
    output_tokens: Count = 198
    output_cv: Positive = 1.0
    shared_prefix_tokens: int = Field(default=0, ge=0)

    def trace(self, seed: int, given: Mapping[str, Trace] | None = None) -> Trace:
        """The requests; ``given`` traces by name.

        Raises ``ScenarioError`` where the source is none of them, ``TraceError`` for impossible
        laws.
        """
        if self.source == GENERATED:
            return generate(self._spec(), seed)
        trace = sample_trace() if self.source == SAMPLE else (given or {}).get(self.source)
        if trace is None:
            raise ScenarioError(
                f"workload.source: the trace {self.source!r} is not here; upload it, or choose "
                f"{GENERATED} or {SAMPLE}"
            )
        trace = limit(trace, self.requests)
        return trace if self.rate_per_s is None else at_rate(trace, self.rate_per_s)

    def _spec(self) -> WorkloadSpec:
        rate_per_s = self.rate_per_s or 1.0
        arrivals = ArrivalChoice(
            self.arrivals, rate_per_s, self.cv, 1, 11.3, 46.5, False, 1.0, None, 86_400.0
        )
        prompt, output = (
            LengthChoice(part, "lognormal", mean, cv, None, 1.1, 2.2).law()
            for part, mean, cv in (
                ("prompt", self.prompt_tokens, self.prompt_cv),
                ("output", self.output_tokens, self.output_cv),
            )
        )
        shared = PrefixChoice(
            None, _GROUPS if self.shared_prefix_tokens else 0, self.shared_prefix_tokens,
            _PREFIX_ZIPF, 1, 1, 1, 0.0, _BLOCK_TOKENS,
        )  # fmt: skip
        return WorkloadSpec(
            self.requests, arrivals.process(), IndependentLengths(prompt, output), shared.prefixes()
        )


class Server(Part):
    """A calibrated ``profile``, or ``model`` on ``hardware`` by its data sheet.

    Where none is named, the profile ``PROFILE``.
    """

    profile: str | None = None
    model: str | None = None
    hardware: str | None = None
    techniques: tuple[str, ...] = ()
    efficiency: str | None = None

    def options(self) -> ServerOptions:
        """As the command line has them."""
        profile = self.profile if self.model or self.profile else PROFILE
        return ServerOptions(
            [profile] if profile else None,
            self.model,
            self.hardware,
            self.techniques,
            self.efficiency,
        )


class Limits(Part):
    """The SLO, in milliseconds; None does not limit."""

    ttft_ms: Positive | None = 500.0
    tpot_ms: Positive | None = 50.0
    e2e_ms: Positive | None = None

    def slo(self) -> SLO:
        """In seconds."""
        given = {"ttft_s": self.ttft_ms, "tpot_s": self.tpot_ms, "e2e_s": self.e2e_ms}
        return SLO(**{name: ms / 1000 for name, ms in given.items() if ms is not None})


class ScenarioFile(Part):
    """All that a what-if needs. ``policies`` and ``cluster`` name only what differs from the
    server's own; ``preset`` comes before them."""

    workload: Workload = Workload()
    server: Server = Server()
    preset: str | None = None
    policies: dict[str, Any] = Field(default_factory=dict)
    cluster: dict[str, Any] = Field(default_factory=dict)
    slo: Limits = Limits()
    seed: int = Field(default=0, ge=0)

    def build(self, trace: Trace) -> Scenario:
        """Servers, policies and cluster for ``trace``; the model length grows to its longest
        request. Raises ``ServetwinError`` naming the setting that cannot be."""
        servers = self.server.options().base()
        preset = find_preset(self.preset) if self.preset else None
        settings = {**(preset.policies if preset else {}), **self.policies}
        around = {**servers.cluster.as_dict(), **(preset.cluster if preset else {}), **self.cluster}
        config, _ = fit_to_trace(with_settings(servers.policies, settings), trace, settings)
        return Scenario(config, servers.profile, ClusterConfig(**around), servers.more_profiles)

    def as_yaml(self) -> str:
        """The file; what is as by default is left out."""
        found: str = yaml.safe_dump(
            self.model_dump(mode="json", exclude_defaults=True), sort_keys=False
        )
        return found


def parse_scenario(text: str, source: str) -> ScenarioFile:
    """The scenario in ``text``; raises ``ScenarioError`` naming ``source``, the key and what would
    be right."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScenarioError(f"{source}: not YAML ({' '.join(str(error).split())})") from error
    if not isinstance(found, dict | None):
        raise ScenarioError(f"{source}: wants keys such as workload, server, policies, slo")
    return parse_scenario_dict(found or {}, source)


def parse_scenario_dict(found: Mapping[str, Any], source: str) -> ScenarioFile:
    """``parse_scenario`` of what was read already."""
    try:
        scenario = ScenarioFile.model_validate(found)
    except ValidationError as error:
        raise ScenarioError(f"{source}: {_first_problem(error)}") from error
    _require_known(source, "policies", scenario.policies, PolicyConfig)
    _require_known(source, "cluster", scenario.cluster, ClusterConfig)
    return scenario


def _require_known(source: str, section: str, given: Mapping[str, Any], of: type[Any]) -> None:
    known = [field.name for field in fields(of)]
    for key in given:
        if key not in known:
            hint = did_you_mean(str(key), known, f"known are {', '.join(known)}")
            raise ScenarioError(f"{source}: {section}.{key}: unknown key; {hint}")


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    place: Sequence[Any] = problem["loc"]
    where = ".".join(map(str, place))
    if problem["type"] == "extra_forbidden":
        known = list(_section(place[:-1]).model_fields)
        hint = did_you_mean(str(place[-1]), known, f"known are {', '.join(known)}")
        return f"{where}: unknown key; {hint}"
    return f"{where}: {problem['input']!r}: {problem['msg'].lower()}"


def _section(place: Sequence[Any]) -> type[Part]:
    sections: dict[tuple[Any, ...], type[Part]] = {
        (): ScenarioFile, ("workload",): Workload, ("server",): Server, ("slo",): Limits,
    }  # fmt: skip
    return sections[tuple(place)]
