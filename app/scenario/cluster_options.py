"""Options of a cluster: how many servers, which router, how clients follow up."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from typer import Option

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
    closed_loop: ClosedLoop = None

    def changes(self) -> dict[str, Any]:
        """Return the settings of ``ClusterConfig`` to change."""
        same = ("replicas", "router", "closed_loop")
        changes = {name: getattr(self, name) for name in same if getattr(self, name) is not None}
        if self.staleness_ms is not None:
            changes["staleness_s"] = self.staleness_ms / 1000
        if self.prefill_decode is not None:
            changes["prefill_replicas"], changes["decode_replicas"] = self.prefill_decode
        if self.link_gb_per_s is not None:
            changes["link_bytes_per_s"] = self.link_gb_per_s * 1e9
        return changes
