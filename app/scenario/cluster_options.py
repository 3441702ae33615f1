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
    prefill_decode: Annotated[
        tuple[int, int] | None, Option(metavar="P D", help="Servers for prompts and for decodes.")
    ] = None
    link_gb_per_s: Annotated[
        float | None, Option(help="{cluster.link_bytes_per_s} In 10^9 B/s.")
    ] = None
    closed_loop: ClosedLoop = None

    def changes(self) -> dict[str, Any]:
        """Return the settings of ``ClusterConfig`` to change."""
        prefill, decode = self.prefill_decode or (None, None)
        settings = {
            "replicas": self.replicas,
            "router": self.router,
            "staleness_s": None if self.staleness_ms is None else self.staleness_ms / 1000,
            "prefill_replicas": prefill,
            "decode_replicas": decode,
            "link_bytes_per_s": None if self.link_gb_per_s is None else self.link_gb_per_s * 1e9,
            "closed_loop": self.closed_loop,
        }
        return {name: value for name, value in settings.items() if value is not None}
