"""Plain-text tables: a report says first what was simulated."""

from servetwin.app.reports.table import WIDTH
from servetwin.app.reports.tables import scenario_lines, server_lines
from servetwin.app.words import ends, number
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
