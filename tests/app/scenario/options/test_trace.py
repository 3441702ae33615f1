"""A mapping of columns comes from ``--map`` or from a scenario, which asks nothing then."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servetwin.app.scenario.files.scenario_file import (
    ScenarioError,
    ScenarioFile,
    Workload,
    parse_scenario,
)
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.groups import OptionError
from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions, ScenarioOptions
from servetwin.app.scenario.options.simulations import ReplayOptions
from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.app.tasks.replay import Replay
from servetwin.workloads.errors import TraceError

MAP = "arrival_ms=time,prompt_tokens=prompt,output_tokens=x"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text("time,prompt,x\n0,412,35\n1500,58,21\n")
    return path


def test_a_mapping_of_the_command_line(table: Path) -> None:
    with pytest.raises(TraceError, match="give --map arrival_s=time,"):
        TraceOptions(path=table).read()
    found = TraceOptions(path=table, columns=MAP).read()
    assert [(r.arrival_s, r.output_tokens) for r in found] == [(0.0, 35), (1.5, 21)]


def test_a_scenario_keeps_the_mapping(table: Path) -> None:
    file = ScenarioFile(workload=Workload(source="mine.csv", rate_per_s=None, columns=MAP))
    again = parse_scenario(file.as_yaml(), "scenario.yaml")
    assert again == file
    trace = TraceOptions(path=table)
    options = ScenarioOptions(Deployment(), PolicyOptions(), ClusterOptions(), trace)
    replay = Replay(again, options, ReplayOptions())
    assert [r.arrival_s for r in replay.requests()] == [0.0, 1.5]
    with pytest.raises(ScenarioError, match=r"workload\.columns: columns: unknown quantity 'tz'"):
        parse_scenario("workload: {columns: 'tz=a'}", "scenario.yaml")


def test_a_mapping_without_its_table_is_refused(table: Path) -> None:
    with pytest.raises(TraceError, match="--map: give the trace"):
        TraceOptions(columns=MAP).read_or_sample()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"summary_tokens": 100}, "--summary-tokens: is of --compact: give it too"),
        ({"session_rate_per_s": 2.0}, "--session-rate: is of a directory of sessions"),
    ],
)
def test_an_option_that_this_trace_does_not_read_is_refused(
    options: dict[str, Any], says: str, table: Path
) -> None:
    trace = TraceOptions(path=table, columns=MAP, **options)
    with pytest.raises(OptionError, match=f"^{says}$"):
        trace.read()
    assert len(replace(trace, compact=500, session_rate_per_s=None).read()) == 2
