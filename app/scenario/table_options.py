"""Options that take step times from measured tables instead of a data sheet."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Option

from workloads.errors import PolicyError

if TYPE_CHECKING:
    from sim.experiments.scenario import Scenario
    from sim.shapes.model import ModelShape
    from sim.step_times.roofline.links import Link
    from sim.step_times.tables import Table
    from sim.techniques.setup import Setup

_FORMATS = ("operators", "phases", "layers")


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Measured times of a model's operators, phases or layers."""

    PANEL: ClassVar = "Tables"

    operators: Annotated[tuple[Path, Path] | None, Option(metavar="MLP ATTENTION")] = None
    """Operator times of that model: two CSV files in Vidur's columns."""
    phases: Annotated[Path | None, Option()] = None
    """TTFT and TBT tables in Splitwise's columns."""
    where: Annotated[tuple[str, ...], Option(metavar="COLUMN=VALUE")] = ()
    """Which rows of the tables."""
    layers: Annotated[Path | None, Option(metavar="DIR")] = None
    """Layer times of that model on a GPU: a bundle as LLMServingSim measures it through vLLM."""
    rank_link: Annotated[tuple[float, float] | None, Option(metavar="US GB_PER_S")] = None
    """Link between the ranks of a tensor-parallel bundle: latency, bandwidth per direction."""

    @property
    def given(self) -> str | None:
        """The option that names a table, or None."""
        return next((name for name in _FORMATS if getattr(self, name) is not None), None)

    @property
    def paths(self) -> list[Path]:
        """The files or folders of the tables."""
        found = [*(self.operators or ()), self.phases, self.layers]
        return [path for path in found if path is not None]

    def check(self) -> None:
        """Raise ``PolicyError`` for options that do not go together."""
        named = [name for name in _FORMATS if getattr(self, name) is not None]
        if len(named) > 1:
            raise PolicyError(f"--{named[1]}: either --{named[0]} or --{named[1]}, not both")
        if self.where and self.operators is None and self.phases is None:
            raise PolicyError("--where: chooses rows of --operators or --phases")
        if self.rank_link is not None and self.layers is None:
            raise PolicyError("--rank-link: joins the ranks of --layers")
        latency_us, gb_per_s = self.rank_link or (0.0, 1.0)
        if latency_us < 0 or gb_per_s <= 0:
            raise PolicyError(
                f"--rank-link: {latency_us:g} us and {gb_per_s:g} GB/s; the latency must be at "
                "least 0, the bandwidth above 0"
            )

    def over(self, setup: "Setup") -> "Scenario":
        """Return the scenario of a setup with the step times of the table."""
        from sim.experiments.scenario import Scenario
        from sim.step_times.tables import TableProfile

        scenario, deployment = setup.scenario(), setup.deployment
        ranks = deployment.parallel.tensor
        name, table = self._table(deployment.model, ranks, deployment.efficiency.overhead_s)
        kv_bytes = deployment.kv_bytes_per_token()
        server = TableProfile(name, table, scenario.policies, kv_bytes, setup.api)
        return Scenario(scenario.policies, server, scenario.cluster)

    def alone(self, model_name: str) -> "Scenario":
        """Return a scenario of layer times alone: no device says how large its KV memory is."""
        from sim.experiments.scenario import Scenario
        from sim.shapes.catalogue import find_model
        from sim.step_times.roofline.deployment import ACTIVATION_BYTES
        from sim.step_times.roofline.server import unlimited_policies
        from sim.step_times.tables import TableProfile

        model = find_model(model_name)
        name, table = self._table(model, None, 0.0)
        policies = unlimited_policies(model.max_model_len)
        kv_bytes = model.kv_elements_per_token() * ACTIVATION_BYTES
        return Scenario(policies, TableProfile(name, table, policies, kv_bytes))

    def _table(
        self, model: "ModelShape", ranks: int | None, overhead_s: float
    ) -> "tuple[str, Table]":
        from sim.step_times.tables import LayerTable, read_layer_bundle

        if self.layers is not None:
            times = read_layer_bundle(self.layers, ranks)
            return times.name, LayerTable(times, model, self._link(times.ranks))
        if self.operators is not None:
            return self._operator_table(model, ranks or 1, overhead_s)
        return self._phase_table(ranks or 1)

    def _link(self, ranks: int) -> "Link | None":
        from sim.step_times.roofline.links import Link

        if self.rank_link is not None:
            latency_us, gb_per_s = self.rank_link
            return Link(1e-6 * latency_us, 1e9 * gb_per_s)
        if ranks > 1:
            raise PolicyError(
                f"--rank-link: layer times of {ranks} ranks hold no messages between them; give "
                "latency (us) and bandwidth (GB/s) of their link"
            )
        return None

    def _rows(self) -> dict[str, str]:
        from workloads.key_values import key_value

        return dict(key_value(text, "--where", form="COLUMN=VALUE") for text in self.where)

    def _operator_table(
        self, model: "ModelShape", ranks: int, overhead_s: float
    ) -> "tuple[str, Table]":
        from sim.step_times.tables import OperatorTable

        assert self.operators is not None
        table = OperatorTable.read(
            *self.operators,
            layers=model.layer_count,
            tensor_parallel=ranks,
            overhead_s=overhead_s,
            where=self._rows(),
        )
        return self.operators[0].parent.name or "operators", table

    def _phase_table(self, ranks: int) -> "tuple[str, Table]":
        from sim.step_times.tables import PhaseTable

        assert self.phases is not None
        where = self._rows()
        if unknown := where.keys() - {"model", "hardware"}:
            raise PolicyError(f"--where: {min(unknown)!r}; a phase table has model, hardware")
        table = PhaseTable.read(
            self.phases,
            model=where.get("model"),
            hardware=where.get("hardware"),
            tensor_parallel=ranks if ranks > 1 else None,
        )
        return self.phases.stem, table
