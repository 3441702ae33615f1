"""Options of policies and of a cluster, and all options of a scenario together."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from typer import Option

from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.app.scenario.settings import parse_settings, with_settings
from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import find_preset
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.files import document

if TYPE_CHECKING:
    from servetwin.app.scenario.servers import Servers
    from servetwin.sim.catalogue.hardware import Link

UNLIMITED_TOKENS = 1 << 40


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """Policies of the command line; an option that is absent leaves the setting to the server."""

    PANEL: ClassVar = "Policy"

    preset: Annotated[str | None, Option(help="{preset}")] = None
    batching: Annotated[str | None, Option(help="{policies.batching}")] = None
    kv: Annotated[str | None, Option(help="{policies.kv}")] = None
    reservation: Annotated[str | None, Option(help="{policies.reservation}")] = None
    prefix_cache: Annotated[
        bool | None, Option("--prefix-cache/--no-prefix-cache", help="{policies.prefix_cache}")
    ] = None
    kv_tokens: Annotated[str | None, Option(help="{policies.kv_tokens} Or 'unlimited'.")] = None
    block_tokens: Annotated[int | None, Option(help="{policies.block_tokens}")] = None
    max_model_len: Annotated[int | None, Option(help="{policies.max_model_len}")] = None
    max_seqs: Annotated[int | None, Option(help="{policies.max_seqs}")] = None
    token_budget: Annotated[int | None, Option(help="{policies.token_budget}")] = None
    wait_limit_ms: Annotated[float | None, Option(help="{policies.wait_limit_s}")] = None
    queue_limit: Annotated[int | None, Option(help="{policies.queue_limit}")] = None
    settings: Annotated[tuple[str, ...], Option("--set", metavar="KEY=VALUE")] = ()
    """Any other setting: queue_order, admission, victim, eviction ..."""

    def require_one_server(self) -> None:
        """Raise ``PolicyError`` for a preset of several servers, where there is one."""
        around = find_preset(self.preset).cluster if self.preset else {}
        if around:
            settings = ", ".join(f"{key} {value}" for key, value in around.items())
            raise PolicyError(
                f"--preset {self.preset}: several servers ({settings}), and here is one; simulate "
                "them with servetwin replay, or name its policies (--batching, --kv)"
            )

    def laid_on(self, servers: "Servers") -> "Servers":
        """Return ``servers`` with the preset, its kernels too, and every option laid over them."""
        return servers.imitating(self.preset).over(self.changes(), {})

    def over(self, base: PolicyConfig) -> PolicyConfig:
        """Return ``base`` with the preset and every option laid over it."""
        return with_settings(base, self.changes())

    def changes(self) -> dict[str, Any]:
        """Return the settings of ``PolicyConfig`` to change: options over ``--set`` over preset."""
        changes = dict(find_preset(self.preset).policies) if self.preset else {}
        changes.update(parse_settings(self.settings, "--set"))
        apart = ("kv_tokens", "wait_limit_ms", "preset", "settings")
        same = (name for name in self.__slots__ if name not in apart)
        changes |= {name: v for name in same if (v := getattr(self, name)) is not None}
        if self.kv_tokens is not None:
            changes["kv_tokens"] = parse_kv_tokens(self.kv_tokens)
        if self.wait_limit_ms is not None:
            changes["wait_limit_s"] = self.wait_limit_ms / 1000
        return changes


def parse_kv_tokens(text: str) -> int:
    """Return a number of tokens; ``unlimited`` is more than any trace fills."""
    if text == "unlimited":
        return UNLIMITED_TOKENS
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise PolicyError(f"--kv-tokens: {text!r} is neither a number of tokens nor 'unlimited'")
    return int(text)


ClosedLoop = Annotated[
    bool | None,
    Option("--closed-loop/--open-loop", help="{cluster.closed_loop}", rich_help_panel="Workload"),
]
FailFast = Annotated[
    bool | None,
    Option("--fail-fast", help="{cluster.fail_fast}", rich_help_panel="Workload"),
]


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The cluster of the command line; an option that is absent leaves the setting as it is."""

    PANEL: ClassVar = "Cluster"

    replicas: Annotated[int | None, Option(help="{cluster.replicas}", min=1)] = None
    router: Annotated[str | None, Option(help="{cluster.router}")] = None
    staleness_ms: Annotated[float | None, Option(help="{cluster.staleness_s}")] = None
    prefill_decode: Annotated[tuple[int, int] | None, Option(metavar="P D")] = None
    """Servers for prompts and for decodes."""
    link_gb_per_s: Annotated[
        float | None, Option(help="{cluster.link_bytes_per_s} In 10^9 B/s.")
    ] = None
    link_us: Annotated[float | None, Option(help="{cluster.link_latency_s} In us.", min=0)] = None
    closed_loop: ClosedLoop = None
    fail_fast: FailFast = None
    autoscaling: Annotated[
        str | None, Option("--autoscale", metavar="RULE:KEY=VALUE", help="{cluster.autoscaling}")
    ] = None
    faults: Annotated[
        str | None, Option(metavar="FILE|NAME:KEY=VALUE", help="{cluster.faults}")
    ] = None
    timeout_s: Annotated[
        float | None, Option("--timeout", help="{cluster.timeout_s}", min=0.001)
    ] = None
    quotas: Annotated[str | None, Option(metavar="TENANT=RATE/BURST", help="{cluster.quotas}")] = (
        None
    )

    def changes(self) -> dict[str, Any]:
        """Return the settings of ``ClusterConfig`` to change."""
        apart = ("staleness_ms", "prefill_decode", "link_gb_per_s", "link_us")
        same = (name for name in self.__slots__ if name not in apart)
        changes = {name: v for name in same if (v := getattr(self, name)) is not None}
        if self.faults and Path(self.faults).is_file():
            changes["faults"] = document(Path(self.faults)).decode()
        if self.staleness_ms is not None:
            changes["staleness_s"] = self.staleness_ms / 1000
        if self.prefill_decode is not None:
            if self.prefill_decode == (0, 0):
                raise PolicyError("--prefill-decode: wants servers of each kind, not 0 and 0")
            changes["prefill_replicas"], changes["decode_replicas"] = self.prefill_decode
        if self.link_gb_per_s is not None:
            changes["link_bytes_per_s"] = self.link_gb_per_s * 1e9
        if self.link_us is not None:
            changes["link_latency_s"] = self.link_us * 1e-6
        return changes

    def device_link(self) -> "Link | None":
        """Return the link between the devices of one server, by its latency and bandwidth."""
        from servetwin.sim.catalogue.hardware import Link

        if self.link_us is None or self.link_gb_per_s is None:
            return None
        return Link(1e-6 * self.link_us, 1e9 * self.link_gb_per_s)


@dataclass(frozen=True, slots=True)
class ScenarioOptions:
    """A trace and a scenario of the command line."""

    servers: Deployment
    policy: PolicyOptions
    cluster: ClusterOptions
    trace: TraceOptions

    def with_trace(self, path: Path | None, seed: int) -> "ScenarioOptions":
        """Return the options with the trace at ``path``."""
        return replace(self, trace=replace(self.trace, path=path, seed=seed))
