"""Options of a cluster: how many servers, which router, how clients follow up."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from typer import Option

from servetwin.workloads.errors import PolicyError

if TYPE_CHECKING:
    from servetwin.sim.catalogue.hardware import Link

ClosedLoop = Annotated[
    bool | None,
    Option("--closed-loop/--open-loop", help="{cluster.closed_loop}", rich_help_panel="Workload"),
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

    def changes(self) -> dict[str, Any]:
        """Return the settings of ``ClusterConfig`` to change."""
        same = ("replicas", "router", "closed_loop")
        changes = {name: getattr(self, name) for name in same if getattr(self, name) is not None}
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

    def link(self) -> "Link | None":
        """Return the link between the ranks of one server too, where both options are given."""
        from servetwin.sim.catalogue.hardware import Link

        if self.link_us is None or self.link_gb_per_s is None:
            return None
        return Link(1e-6 * self.link_us, 1e9 * self.link_gb_per_s)
