"""The tables that several tests share."""

import pytest

from servetwin.sim.step_times.tables import Table
from tests.support.measured_tables import noisy, operators, phases


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    folder = tmp_path_factory.mktemp("tables")
    return {"operators": operators(folder, noisy(0.03)), "phases": phases(folder, noisy(0.03))}
