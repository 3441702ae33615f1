"""Step-time models from tables of measured times, by interpolation."""

from servetwin.sim.step_times.tables.efficiency_fit import EfficiencyFit as EfficiencyFit
from servetwin.sim.step_times.tables.efficiency_fit import fit_efficiency as fit_efficiency
from servetwin.sim.step_times.tables.interpolate import Curve as Curve
from servetwin.sim.step_times.tables.interpolate import HeldOutError as HeldOutError
from servetwin.sim.step_times.tables.interpolate import Surface as Surface
from servetwin.sim.step_times.tables.interpolate import held_out_error as held_out_error
from servetwin.sim.step_times.tables.kernel_table import KernelTable as KernelTable
from servetwin.sim.step_times.tables.layer_bundle import LayerTimes as LayerTimes
from servetwin.sim.step_times.tables.layer_bundle import read_layer_bundle as read_layer_bundle
from servetwin.sim.step_times.tables.layer_table import LayerTable as LayerTable
from servetwin.sim.step_times.tables.operator_table import OperatorTable as OperatorTable
from servetwin.sim.step_times.tables.operator_table import OperatorTimes as OperatorTimes
from servetwin.sim.step_times.tables.phase_table import PhaseTable as PhaseTable
from servetwin.sim.step_times.tables.server_overheads import LoadedTable as LoadedTable
from servetwin.sim.step_times.tables.table import Table as Table
from servetwin.sim.step_times.tables.table import TableProfile as TableProfile
