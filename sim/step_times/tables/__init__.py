"""Step-time models from tables of measured times, by interpolation."""

from servetwin.sim.step_times.tables.kernel_table import KernelTable as KernelTable
from servetwin.sim.step_times.tables.layer_table import LayerTable as LayerTable
from servetwin.sim.step_times.tables.server_overheads import LoadedTable as LoadedTable
from servetwin.sim.step_times.tables.table import Table as Table
from servetwin.sim.step_times.tables.table import TableProfile as TableProfile
