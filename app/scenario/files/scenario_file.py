"""A scenario as a file: workload, deployment, policies, cluster, SLO, seed; YAML that people edit.

Unknown keys are errors that name the key and the nearest known one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self, get_type_hints

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.scenarios import fitted, preset_cluster
from servetwin.app.scenario.servers import Servers
from servetwin.app.scenario.settings import parse_policies
from servetwin.policies.config import PolicyConfig, as_written
from servetwin.policies.presets import find_preset
from servetwin.sim.catalogue.entry import Count, FrozenModel, Positive
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.records.metrics import SLO
from servetwin.workloads.errors import PolicyError, ServetwinError, TraceError, did_you_mean
from servetwin.workloads.files import document
from servetwin.workloads.generators.generate import WorkloadSpec, generate
from servetwin.workloads.generators.lengths import IndependentLengths, LognormalTokens
from servetwin.workloads.generators.prefixes import (
    PrefixGroups,
    with_conversations,
    with_shared_texts,
)
from servetwin.workloads.generators.processes import ARRIVALS, arrival_settings, plain_arrivals
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.tables.mapping import parse_mapping
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import at_rate, limit
from servetwin.workloads.yaml_text import YamlError, load_yaml

GENERATED, SAMPLE = "generated", "sample"
# Where a generated workload names no number.
GENERATED_REQUESTS = 2_000
_GROUPS = 16
_SETTINGS: dict[str, type[Any]] = {"policies": PolicyConfig, "cluster": ClusterConfig}


class ScenarioError(ServetwinError):
    """A scenario that cannot be read or built; the message names the key."""

    exit_code = 2


def _plain_process(name: str) -> str:
    if name not in (known := plain_arrivals()):
        raise ValueError(f"{name!r}: {did_you_mean(name, known, f'known are {known}')}")
    return name


def checked_columns(text: str | None) -> str | None:
    """Return a mapping of columns as it is; raise ``ValueError`` where it cannot be read."""
    if text is not None:
        try:
            parse_mapping(text, "columns")
        except TraceError as error:
            raise ValueError(str(error)) from None
    return text


class Workload(FrozenModel):
    """Which requests come, and when. All keys from ``arrivals`` on are of generated ones."""

    source: str = GENERATED
    """``generated``, ``sample`` (the bundled trace), or the name of an uploaded trace."""
    requests: int | None = Field(default=None, ge=1)
    """Number of requests, of a trace the first ones; None: 2,000 generated ones, all of a trace."""
    columns: Annotated[str | None, AfterValidator(checked_columns)] = None
    """Columns of an own table, as ``--map`` names them; None: as they are recognised."""
    rate_per_s: Positive | None = 10.0
    """Mean arrivals per second, of all replicas together; None: as in the trace."""
    prefix_share: float = Field(default=0.0, ge=0, le=0.95)
    """Assumed share of a prompt that begins like others (a trace without prefix ids)."""
    conversations: bool = False
    """Assume that a prompt begins with its session so far (a trace without prefix ids)."""
    arrivals: Annotated[str, AfterValidator(_plain_process)] = "poisson"
    """Process by which requests arrive."""
    cv: Positive = 1.2
    """Coefficient of variation of gamma and weibull gaps; above 1 is bursty."""
    prompt_tokens: Count = 496
    """Mean of the log-normal prompt lengths."""
    prompt_cv: Positive = 1.0
    """Coefficient of variation of the prompt lengths."""
    output_tokens: Count = 198
    """Mean of the log-normal output lengths."""
    output_cv: Positive = 1.0
    """Coefficient of variation of the output lengths."""
    shared_prefix_tokens: int = Field(default=0, ge=0)
    """Tokens that each prompt shares with its group (16 groups, Zipf 1)."""

    @model_validator(mode="after")
    def _generated_has_a_rate(self) -> Self:
        if self.is_generated and self.rate_per_s is None:
            raise ValueError("rate_per_s: a generated workload needs a rate")
        return self

    @property
    def is_generated(self) -> bool:
        """Whether distributions make the requests, so that another seed makes others."""
        return self.source == GENERATED

    @property
    def is_uploaded(self) -> bool:
        """Whether the requests are those of a trace that has a name."""
        return self.source not in (GENERATED, SAMPLE)

    def trace(self, seed: int, uploaded: Mapping[str, Trace] | None = None) -> Trace:
        """Return the requests; ``uploaded`` are traces by name.

        Raises ``ScenarioError`` where the source is none of them, ``TraceError`` for impossible
        distributions.
        """
        if self.is_generated:
            return generate(self._spec(), seed)
        trace = sample_trace() if self.source == SAMPLE else (uploaded or {}).get(self.source)
        if trace is None:
            raise ScenarioError(
                f"workload.source: the trace {self.source!r} is not here; upload it, or choose "
                f"{GENERATED} or {SAMPLE}"
            )
        trace = trace if self.requests is None else limit(trace, self.requests)
        trace = trace if self.rate_per_s is None else at_rate(trace, self.rate_per_s)
        return self.with_prefixes(trace, seed)

    def with_prefixes(self, trace: Trace, seed: int) -> Trace:
        """Return the trace with prefix ids as assumed, where it has none."""
        trace = with_conversations(trace) if self.conversations else trace
        return with_shared_texts(trace, self.prefix_share, _GROUPS, seed)

    def _spec(self) -> WorkloadSpec:
        cv = {"cv": self.cv} if "cv" in arrival_settings(self.arrivals) else {}
        arrivals = ARRIVALS.build(self.arrivals, self.rate_per_s or 1.0, **cv)
        lengths = IndependentLengths(
            LognormalTokens.from_mean(self.prompt_tokens, self.prompt_cv),
            LognormalTokens.from_mean(self.output_tokens, self.output_cv),
        )
        shared = self.shared_prefix_tokens
        prefixes = PrefixGroups(_GROUPS, shared) if shared else None
        return WorkloadSpec(self.requests or GENERATED_REQUESTS, arrivals, lengths, prefixes)


def _listed(section: Any) -> Any:
    """Return a deployment with one profile or technique as a list, and its widths as a text."""
    if not isinstance(section, dict):
        return section
    lists = ("profile", "techniques", "without")
    section = {k: (v,) if k in lists and isinstance(v, str) else v for k, v in section.items()}
    if isinstance(widths := section.get("layout"), dict):
        section["layout"] = ",".join(f"{name}={width}" for name, width in widths.items())
    return section


# The deployment that the dashboard begins with.
FIRST_SERVER = Deployment(model="llama-3-8b", gpu="h100")


class Limits(FrozenModel):
    """The SLO, in milliseconds; None does not limit."""

    ttft_ms: Positive | None = 500.0
    """Time to first token at most."""
    tpot_ms: Positive | None = 50.0
    """Time per output token at most."""
    e2e_ms: Positive | None = None
    """End-to-end latency at most."""
    percentile: float = Field(default=99.0, ge=1, le=100)
    """Percentage of all requests that must keep every limit: 99 is the p99."""

    @property
    def attainment(self) -> float:
        """Return the share of all requests that must keep every limit."""
        return as_share(self.percentile)

    def slo(self) -> SLO:
        """Return the limits in seconds."""
        limits_ms = {"ttft_s": self.ttft_ms, "tpot_s": self.tpot_ms, "e2e_s": self.e2e_ms}
        return SLO(**{name: ms / 1000 for name, ms in limits_ms.items() if ms is not None})


def as_share(percentile: float) -> float:
    """Return a percentage as a share: 99.9 as 0.999, which 999 of 1,000 reach."""
    return round(percentile / 100, 9)


class ScenarioFile(FrozenModel):
    """All that a what-if needs. ``policies`` and ``cluster`` name only what differs from the
    server's own; ``preset`` comes before them."""

    workload: Workload = Workload()
    """Which requests come, and when."""
    deployment: Annotated[
        Deployment, BeforeValidator(_listed), PlainSerializer(Deployment.settings)
    ] = FIRST_SERVER
    """What serves them: model, gpu, layout, server, link, times; or a profile."""
    preset: str | None = None
    """Policies of a known server, before single settings."""
    policies: dict[str, Any] = Field(default_factory=dict)
    """Settings that differ from the server's own."""
    cluster: dict[str, Any] = Field(default_factory=dict)
    """Settings that differ from a single server."""
    slo: Limits = Limits()
    """Limits that a request must keep."""
    seed: int = Field(default=0, ge=0)
    """Seed of every random stream."""

    def over(self, policies: Mapping[str, Any], cluster: Mapping[str, Any]) -> "ScenarioFile":
        """Return the scenario with further settings, which win."""
        policies, cluster = {**self.policies, **policies}, {**self.cluster, **cluster}
        return self.model_copy(update={"policies": policies, "cluster": cluster})

    def with_policies(self, text: str) -> "ScenarioFile":
        """Return the scenario under a side of ``replay compare``; raises ``PolicyError``."""
        named = parse_policies(text)
        cluster = {**named.preset_cluster, **self.cluster, **named.cluster}
        if not named.presets or named.presets[-1] == self.preset:
            return self.over(named.policies, cluster)
        before = {**preset_cluster(self.preset), **cluster}
        scenario = self.over({**self._policies(), **named.policies}, before)
        return scenario.model_copy(update={"preset": named.presets[-1]})

    def servers(self, servers: Servers | None = None) -> Servers:
        """Return servers (``servers`` in place of its own) under the policies and cluster."""
        servers = (servers or self.deployment.servers()).imitating(self.preset)
        return servers.over(self._policies(), {**preset_cluster(self.preset), **self.cluster})

    def settled(self) -> Scenario:
        """Return servers, policies and cluster.

        Raises ``ServetwinError`` naming the setting that cannot be.
        """
        return self.servers().scenario()

    def build(self, trace: Trace) -> Scenario:
        """Return the scenario for ``trace``: as ``settled``, with a model length that fits every
        request."""
        return fitted(self.servers(), trace, self._policies())[0]

    def _policies(self) -> dict[str, Any]:
        preset = find_preset(self.preset).policies if self.preset else {}
        return {**preset, **self.policies}

    def redraw(self, seed: int) -> tuple[Trace, Scenario]:
        """Return another draw of a generated workload, and the scenario that fits it."""
        trace = self.workload.trace(seed)
        return trace, self.build(trace)

    def as_yaml(self) -> str:
        """Return the text of the file: the server, and settings that are not at their default."""
        settings = self.model_dump(mode="json", exclude_defaults=True)
        settings.setdefault("deployment", self.deployment.settings())
        return str(yaml.safe_dump(settings, sort_keys=False))


def read_scenario(path: Path) -> ScenarioFile:
    """Read the scenario in a file; raises ``ScenarioError`` naming the file and the key."""
    try:
        content = document(path)
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_scenario(content, str(path))


def parse_scenario(content: str | bytes, source: str) -> ScenarioFile:
    """Read the scenario in ``content``; bytes are a text in UTF-8.

    Raises ``ScenarioError`` naming ``source``, the key and what would be right.
    """
    try:
        document = load_yaml(content if isinstance(content, str) else content.decode())
    except UnicodeDecodeError:
        raise ScenarioError(f"{source}: not a text file") from None
    except YamlError as error:
        raise ScenarioError(f"{source}: not YAML ({error})") from error
    if not isinstance(document, dict | None):
        raise ScenarioError(f"{source}: wants keys such as {', '.join(ScenarioFile.model_fields)}")
    return parse_scenario_dict(document or {}, source)


def parse_scenario_dict(settings: Mapping[Any, Any], source: str) -> ScenarioFile:
    """Check a scenario that is a mapping already; raises as ``parse_scenario`` does."""
    try:
        scenario = ScenarioFile.model_validate(settings)
    except ValidationError as error:
        raise ScenarioError(f"{source}: {_first_problem(error)}") from error
    try:
        scenario.deployment.check()
    except PolicyError as error:
        raise ScenarioError(f"{source}: deployment.{as_keys(error)}") from error
    for section in _SETTINGS:
        for key, value in getattr(scenario, section).items():
            if problem := _setting_problem(section, key, value):
                raise ScenarioError(f"{source}: {section}.{key}: {problem}")
    return scenario


def as_keys(error: ServetwinError) -> str:
    """Return the message of an option with the keys of a deployment in place of options."""
    keys = {"technique": "techniques"}
    return re.sub(r"--(\w+)", lambda match: keys.get(match[1], match[1]), str(error))


def _setting_problem(section: str, key: str, value: Any) -> str | None:
    known = _known_settings(section)
    if key not in known:
        return f"unknown key; {did_you_mean(key, known)}"
    try:
        known[key].validate_python(value, strict=True)
    except ValidationError as error:
        return f"{as_written(value)}: {error.errors()[0]['msg'].lower()}"
    return None


@cache
def _known_settings(section: str) -> dict[str, TypeAdapter[Any]]:
    finite = ConfigDict(allow_inf_nan=False)
    kinds = get_type_hints(_SETTINGS[section]).items()
    return {key: TypeAdapter(kind, config=finite) for key, kind in kinds}


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    place: Sequence[Any] = problem["loc"]
    where = ".".join(map(str, place))
    if problem["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        known = _SECTIONS[tuple(place[:-1])]
        return f"{where}: unknown key; {did_you_mean(str(place[-1]), known)}"
    if problem["type"] == "value_error":
        return f"{where}: {problem['ctx']['error']}"
    message = problem["msg"]
    return f"{where}: {as_written(problem['input'])}: {message[0].lower()}{message[1:]}"


_SECTIONS: dict[tuple[Any, ...], list[str]] = {
    (): list(ScenarioFile.model_fields),
    ("workload",): list(Workload.model_fields),
    ("deployment",): [field.name for field in fields(Deployment)],
    ("slo",): list(Limits.model_fields),
}
