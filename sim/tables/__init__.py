"""Step-time models from tables of measured times, by interpolation."""

from sim.tables.efficiency_fit import EfficiencyFit, fit_efficiency
from sim.tables.held_out import HeldOutError, held_out_error
from sim.tables.interpolate import Curve, Surface
from sim.tables.operator_table import OperatorTable, OperatorTimes
from sim.tables.phase_table import PhaseTable
from sim.tables.table import Table
from sim.tables.table_profile import TableFit, TableProfile

__all__ = [
    "Curve",
    "EfficiencyFit",
    "HeldOutError",
    "OperatorTable",
    "OperatorTimes",
    "PhaseTable",
    "Surface",
    "Table",
    "TableFit",
    "TableProfile",
    "fit_efficiency",
    "held_out_error",
]
