"""Step-time models from tables of measured times, by interpolation."""

from servetwin.sim.step_times.tables.efficiency_fit import EfficiencyFit, fit_efficiency
from servetwin.sim.step_times.tables.interpolate import Curve, HeldOutError, Surface, held_out_error
from servetwin.sim.step_times.tables.kernel_table import KernelTable
from servetwin.sim.step_times.tables.layer_bundle import LayerTimes, read_layer_bundle
from servetwin.sim.step_times.tables.layer_table import LayerTable
from servetwin.sim.step_times.tables.loaded_table import LoadedTable
from servetwin.sim.step_times.tables.operator_table import OperatorTable, OperatorTimes
from servetwin.sim.step_times.tables.phase_table import PhaseTable
from servetwin.sim.step_times.tables.table import Table, TableFit, TableProfile

__all__ = [
    "Curve",
    "EfficiencyFit",
    "HeldOutError",
    "KernelTable",
    "LayerTable",
    "LayerTimes",
    "LoadedTable",
    "OperatorTable",
    "OperatorTimes",
    "PhaseTable",
    "Surface",
    "Table",
    "TableFit",
    "TableProfile",
    "fit_efficiency",
    "held_out_error",
    "read_layer_bundle",
]
