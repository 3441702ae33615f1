"""The HTML report: one file that requests nothing, and has what the runs have, escaped."""

import base64
import gzip
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import pytest
import yaml

from servetwin.app.words import METRICS, number

pytest.importorskip("plotly", reason="reports need plotly")

from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from servetwin.app.commands.runs import report
from servetwin.app.reports.html.charts import packed_library
from servetwin.app.reports.html.page import render_html
from servetwin.app.reports.report_folders import NamedRun, find_runs
from servetwin.app.verdict.claims import compare
from servetwin.loadtest.report.server_metrics import COLUMNS, FILE_NAME
from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import Run, RunError, load_run
from servetwin.sim.records.steady_part import describe_steady
from servetwin.workloads.errors import ServetwinError
from tests.support.figure_frames import load_test, requests_frame, steps_frame
from tests.support.report_kinds import KINDS, report_of
from tests.support.report_runs import pretended, simulated

MOST_BYTES = 5_000_000


class Page(HTMLParser):
    """What a page is made of: tags with their attributes, and the text outside scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if inside == "script":
            self.scripts.append(data)
        elif inside != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def charts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[1])
        return found


ORDER = {
    "run": ("Predicted TTFT p90", "metric mean p50", "Distribution of TTFT"),
    "comparison": ("Compared run-1 answers first", "run TTFT, ms mean", "Distribution of TTFT"),
    "load test": ("Measured TTFT p90", "metric mean p50", "Distribution of TTFT"),
    "verification": (
        "Verdict The prediction is refuted",
        "metric load predicted",
        "TTFT, predicted",
    ),
    "recorded": ("Verdict The prediction holds", "metric predicted measured", "TTFT, predicted"),
    "sweep": ("Load levels: knee", "TTFT, p99", "levels of", "level requests/s"),
    "many runs": ("Compared TTFT p90", "run TTFT, ms mean", "Distribution of TTFT"),
}
"""Card, table and chart of each kind of report."""
FOLDED = ("Versions and machines", "Scenarios", "Definitions")


@pytest.mark.parametrize("kind", KINDS)
def test_the_verdict_comes_first_then_what_it_rests_on_and_provenance_is_folded(kind: str) -> None:
    page = Page(report_of(kind))
    order = [*ORDER[kind], "What the figures rest on", "Check it, and run it again", *FOLDED]
    places = [page.text.find(part) for part in order]
    assert -1 not in places, order[places.index(-1)]
    assert places == sorted(places)
    assert len(page.all("details")) == len(page.all("summary")) >= len(FOLDED)
    assert not any("open" in attributes for attributes in page.all("details"))


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_of_a_machine_is_named_by_its_path(kind: str) -> None:
    page = Page(report_of(kind))
    said = " ".join([page.text, *page.scripts[1:], *map(str, page.tags)])
    assert "trace.jsonl" in said or kind == "verification"
    assert not re.search(r"/(home|tmp|root|var|work|Users)\b", said)


@pytest.fixture(scope="module")
def page(folders: Path) -> Page:
    """The page of the prediction and the load test that it matches."""
    return page_of(folders / "predicted", folders / "alike", slo=SLO(ttft_s=0.5))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prediction, a load test that it matches, and one that it does not."""
    root = tmp_path_factory.mktemp("runs")
    predicted = load_run(simulated(root / "predicted", "--kv-usage"))
    pretended(predicted).save(root / "alike")
    pretended(predicted, slower=2.0).save(root / "slower")
    state = pd.DataFrame(
        [(0.0, 1.0, 2.0, 0.5, 0, 0, 0, 0, 0), (1.0, 2.0, 0.0, 0.25, 0, 0, 0, 0, 0)],
        columns=list(COLUMNS),
    )
    state.to_parquet(root / "alike" / FILE_NAME)
    return root


def page_of(*folders: Path, slo: SLO | None = None) -> Page:
    return Page(render_html(*find_runs(folders), slo))


def test_a_page_asks_nobody_for_anything(page: Page) -> None:
    assert not [a for _, a in page.tags if a.keys() & {"src", "srcset", "action"}]
    assert [a["href"] for _, a in page.tags if "href" in a] == ["data:,"]
    policy = page.all("meta")[1]["content"] or ""
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy


def test_the_library_is_inside_once_and_whole(page: Page) -> None:
    library = gzip.decompress(base64.b64decode(page.scripts[0])).decode()
    assert library == get_plotlyjs()
    assert len(page.scripts) == 3
    assert packed_library.__wrapped__() == page.scripts[0], "the same bytes each time"


def test_every_chart_has_its_place_its_title_and_its_text(page: Page) -> None:
    drawn = page.charts()
    places = {a["id"]: a for a in page.all("div") if a.get("role") == "img"}
    assert places.keys() == drawn["charts"].keys()
    assert len(page.all("figcaption")) == len(places) >= 15
    assert all(place["aria-label"] for place in places.values())
    assert drawn["themes"].keys() == {"light", "dark"}
    for chart in drawn["charts"].values():
        assert chart["data"]
        assert "layout" not in chart["layout"]["template"], "the page sets light or dark"


def test_the_tables_hold_what_the_terminal_prints(folders: Path, page: Page) -> None:
    summary = load_run(folders / "predicted").summary(SLO(ttft_s=0.5))
    for point in ("mean", "p50", "p90", "p95", "max"):
        assert f"{summary['ttft_s'][point] * 1e3:.4g}" in page.text
    assert f"{summary['output_throughput_tokens_per_s']:.4g}" in page.text
    assert "40 requests: 40 finished" in page.text
    assert "rests on measured here 100.0 % of simulated time" in page.text
    attained = f"{summary['slo_attainment']:.1%}"
    each = f"{attained} (predicted), {attained} (alike) of all scheduled requests"
    assert f"SLO TTFT ≤ 500 ms met by {each}" in page.text
    assert "* fewer than 100 values: not a firm p99" in page.text


def test_the_steady_part_stands_beside_the_whole_run_or_why_there_is_none() -> None:
    settled, short = load_test(60), load_test(49)
    found = Page(render_html([NamedRun("long", settled), NamedRun("short", short)], []))
    summary = settled.summary()
    steady = summary["steady"]
    assert describe_steady(steady) in found.text
    assert "steady part: none; fewer than 50 requests" in found.text
    for metric in ("ttft_s", "tpot_s", "e2e_s", "decode_tps", "request_tps"):
        for part, figures in (("whole run", summary), ("steady part", steady)):
            title, mean = METRICS[metric].title, METRICS[metric].scaled(figures[metric]["mean"])
            count = figures[metric]["count"]
            assert f"{title} \u25a0 long {part} {count} {mean:.4g} " in found.text
        assert f"{METRICS[metric].title} \u25a0 short whole run" in found.text
    assert "short steady part" not in found.text


def test_metrics_are_defined_one_hover_away_and_at_the_end(page: Page) -> None:
    definitions = {a["title"] for a in page.all("abbr")}
    assert all(a["tabindex"] == "0" for a in page.all("abbr"))
    assert definitions
    assert all(str(definition) in page.text for definition in definitions)


def test_the_scenario_is_included_as_yaml(folders: Path, page: Page) -> None:
    written = yaml.safe_dump(load_run(folders / "predicted").scenario, sort_keys=False)
    assert written in page.words


@pytest.mark.parametrize(
    ("measured", "verdict", "why"),
    [
        ("alike", "holds", "1 load test places every"),
        ("slower", "is refuted", "1 load test places the error of"),
    ],
)
def test_a_prediction_is_judged_by_the_load_tests_of_its_requests(
    folders: Path, measured: str, verdict: str, why: str
) -> None:
    page = page_of(folders / "predicted", folders / measured)
    assert f"Verdict The prediction {verdict} {why}" in page.text
    found = compare(load_run(folders / "predicted"), [load_run(folders / measured)])
    for row in found.metrics:
        assert f"{row.error:+.1%}" in page.text
    assert "TTFT, percentile by percentile" in page.text
    assert "40 matched, 0 not" in page.text
    assert f"Simulated again with the recorded send times: {measured}" in page.text


def test_another_load_is_no_trial(folders: Path) -> None:
    runs, trials = find_runs([folders / "predicted", folders / "alike"])
    other = replace(runs[1].run, requests=runs[1].run.requests.iloc[1:])
    assert len(trials) == 1
    with patch("servetwin.app.reports.report_folders.load_run", side_effect=[runs[0].run, other]):
        assert find_runs([folders / "predicted", folders / "alike"])[1] == []


def test_a_client_that_was_the_limit_is_said_first(folders: Path) -> None:
    run = load_run(folders / "alike")
    run.extra["delivered"] |= {"verdict": "client limited", "limited_by": ["CPU 99%"]}
    page = Page(render_html([NamedRun("late", run)], []))
    said = "CLIENT LIMITED: the latencies below include the client's own (CPU 99%)"
    assert page.text.index(said) < page.text.index("metric mean p50")


def test_what_cannot_be_believed_is_said(folders: Path) -> None:
    run = load_run(folders / "alike")
    run.extra["delivered"] |= {"token_doubts": ["ANSWER BUFFERED for 5 of 5 requests"]}
    assert "ANSWER BUFFERED for 5 of 5 requests" in Page(render_html([NamedRun("r", run)], [])).text


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\"'"


def test_nothing_from_a_trace_becomes_markup(tmp_path: Path) -> None:
    run = load_test(5)
    run.requests["request_id"] = [f"{EVIL}{i}" for i in range(5)]
    run.requests["error"] = EVIL
    run.requests.loc[0, "status"] = "failed"
    run.scenario |= {"trace": EVIL, "notes": [EVIL]}
    run.scenario["endpoint"] |= {"model": EVIL, "base_url": EVIL}
    run.meta["processor"] = EVIL
    server = pd.DataFrame([(0.0, 1.0, 1.0, 0.5, *[0.0] * 5)], columns=list(COLUMNS))
    page = Page(render_html([NamedRun(EVIL, run, server)], []))
    assert len(page.all("script")) == len(page.scripts) == 3
    assert page.all("img") == []
    assert page.words.count(EVIL) >= 2, "as the trace and as a note"
    assert not [a for _, a in page.tags if any(name.startswith("on") for name in a)]
    assert page.charts()["charts"]["chart-1"]["data"][0]["name"] == EVIL


def test_no_request_finished_is_a_page_too() -> None:
    run = load_test(3, status="failed", error="connect")
    page = Page(render_html([NamedRun("dead", run)], [], SLO(ttft_s=1)))
    assert "3 requests: 0 finished, 3 failed" in page.text
    assert "3 x connect" in page.text
    assert "met by 0.0% of all scheduled requests" in page.text


def test_ten_thousand_requests_stay_small() -> None:
    run = load_test(10_000)
    run.requests["request_id"] = [f"a-long-name-of-a-request-{i:030}" for i in range(10_000)]
    steps = steps_frame(50_000)
    simulation = Run("simulation", requests_frame(10_000, 1), steps, {"policies": {}}, {}, {})
    runs = [NamedRun("predicted", simulation), NamedRun("measured", run)]
    page = render_html(runs, [])
    assert len(page.encode()) < MOST_BYTES
    library = len(packed_library())
    assert len(page) - library < 1_000_000, "of which the requests are a small part"


@contextmanager
def no_plotly() -> Iterator[None]:
    with patch("servetwin.app.tasks.report.find_spec", return_value=None):
        yield


def test_the_command_writes_one_file(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    report([folders / "predicted"], out=out)
    assert re.fullmatch(
        rf"{re.escape(str(out))}: 1 run, \d\.\d MB; open it in a browser\n", capsys.readouterr().out
    )
    report([folders], "ttft=1s", out, as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["bytes"] == out.stat().st_size
    assert said["runs"] == [f"{folders.name}/{n}" for n in ("predicted", "alike", "slower")]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "neither a run folder nor a folder of runs"),
        ({"meta.json": "{}"}, "not a readable run folder"),
        ({"inside/summary.json": "{}"}, "inside: not a readable run folder"),
    ],
)
def test_folders_that_are_no_runs_are_named(
    files: dict[str, str], message: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(RunError, match=f"{re.escape(str(tmp_path))}.*{message}"):
        report([tmp_path], out=tmp_path / "page.html")


def test_what_cannot_be_is_one_line(folders: Path, tmp_path: Path) -> None:
    run = load_run(folders / "predicted")
    run.requests = run.requests.drop(columns="replica")
    older = run.save(tmp_path / "older")
    with pytest.raises(RunError, match="no column 'replica'; another version"):
        report([older], out=tmp_path / "page.html")
    with pytest.raises(RunError, match=r"could not be written \(Is a directory\)"):
        report([folders / "predicted"], out=tmp_path)
    with pytest.raises(ServetwinError, match="unknown limit 'tbt'"):
        report([folders / "predicted"], "tbt=1s", tmp_path / "page.html")
    with no_plotly(), pytest.raises(RunError, match=r"pip install 'servetwin\[report\]'"):
        report([folders / "predicted"], out=tmp_path / "page.html")


def test_figures_of_a_thousand_and_more_have_commas() -> None:
    assert [number(6.0451, 1000.0), number(0.04076, 1000.0)] == ["6,045", "40.76"]
