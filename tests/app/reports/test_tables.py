"""Plain-text tables: a report says first what was simulated."""

from servetwin.app.reports.table import WIDTH
from servetwin.app.reports.tables import fleet_lines, scenario_lines, server_lines
from servetwin.app.words import ends, number
from servetwin.sim.core.fleet.fleet import COUNTS
from servetwin.sim.techniques.registry import build_setup

SCENARIO = build_setup("llama-3-8b", "h100", ["fp8"], without=["kernel-fusion"]).scenario()


def test_a_report_names_the_techniques_on_and_off() -> None:
    record = {"techniques": ["fp8", "kv-quantisation:format=int8"], "without": ["kernel-fusion"]}
    server, _, toggles, first = scenario_lines("chats.jsonl", SCENARIO, record)
    assert server.startswith("roofline llama-3-8b on ")
    assert first.startswith("chats.jsonl: continuous+paged, ")
    assert toggles == "techniques fp8, kv-quantisation:format=int8; without kernel-fusion"


def test_a_server_that_names_none_has_no_line_of_them() -> None:
    assert len(server_lines([SCENARIO], {"techniques": [], "without": []})) == 2
    assert len(server_lines([SCENARIO, SCENARIO], {"profile": "base-cpu"})) == 2


def test_many_techniques_go_on_below() -> None:
    record = {"techniques": [f"technique-{number}" for number in range(20)]}
    found = server_lines([SCENARIO], record)
    assert len(found) > 2
    assert max(map(len, found)) <= WIDTH


def test_an_interval_whose_ends_look_the_same_is_none() -> None:
    assert ends(13_991.2, 13_991.4, lambda end: number(end, 1.0)) is None
    assert ends(37.14, 38.26, lambda end: number(end, 1.0)) == ("37.14", "38.26")


FLEET = {
    **dict.fromkeys(COUNTS, 0), "started": 3,
    "replica_hours": 2.5, "sizes": [[0.0, 1], [60.0, 4]],
}  # fmt: skip


def test_a_fleet_says_what_it_cost_and_how_well_it_served() -> None:
    crashed = {**FLEET, "crashes": 1, "timed_out": 7, "price": 5.0, "least_replica_hours": 1.25}
    summary = {"fleet": crashed, "slo_attainment": 0.98765}
    assert " ".join(" ".join(fleet_lines(summary)).split()).split("; ") == [
        "1 to 4 replicas serve, 2.5 replica-hours", "5.00 at list prices",
        "an ideal autoscaler needs at least 1.25", "SLO attainment 98.77 %", "crashes 1", "lost 0",
        "retried 0", "timed out 7", "started 3",
    ]  # fmt: skip
    plain = fleet_lines({"fleet": FLEET})
    assert plain == ["", "1 to 4 replicas serve, 2.5 replica-hours; started 3"]
    assert fleet_lines({}) == []
