"""Step-time models from tables of measured times, by interpolation."""

from sim.step_times.tables.efficiency_fit import EfficiencyFit, fit_efficiency
from sim.step_times.tables.held_out import HeldOutError, held_out_error
from sim.step_times.tables.interpolate import Curve, Surface
from sim.step_times.tables.kernel_table import KernelTable
from sim.step_times.tables.layer_bundle import LayerTimes, read_layer_bundle
from sim.step_times.tables.layer_table import LayerTable
from sim.step_times.tables.loaded_table import LoadedTable
from sim.step_times.tables.operator_table import OperatorTable, OperatorTimes
from sim.step_times.tables.phase_table import PhaseTable
from sim.step_times.tables.table import Table
from sim.step_times.tables.table_profile import TableFit, TableProfile

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
