"""How sure a table is of some steps."""

import numpy as np
import numpy.typing as npt

from servetwin.sim.step_times.provenance import Provenance
from servetwin.sim.step_times.tables import Table
from servetwin.sim.step_times.tables.interpolate import LEVELS
from servetwin.sim.step_times.tables.table import StepColumns


def kinds(
    table: Table,
    decodes: npt.ArrayLike,
    context: npt.ArrayLike,
    chunks: npt.ArrayLike = 0,
    chunk_rows: npt.ArrayLike = 0,
    chunk_start: npt.ArrayLike = 0,
) -> list[Provenance]:
    """Return the provenance of each of many steps."""
    given = (decodes, context, chunks, chunk_rows, chunk_start)
    arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(x, np.float64)) for x in given))
    return [LEVELS[level] for level in table.levels(StepColumns(*arrays))]
