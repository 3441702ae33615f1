"""A figure of a paper: its width, its lines in grey, its names, and what cannot be drawn."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app.figures.paper import CURVES, curve, require_curve
from servetwin.app.reports.sweep import SweepPoints
from servetwin.sim.records.metrics import SLO
from servetwin.workloads.errors import ServetwinError

NAMES = ("FCFS", "my <own> class", "both")


def points(names: tuple[str, ...] = NAMES, top_s: float = 0.4) -> pd.DataFrame:
    rows = [
        {"scenario": name, "rate_per_s": rate, **{c: top_s * rate / 4 for c, _ in CURVES.values()}}
        for rate in (4.0, 1.0, 2.0)
        for name in names
    ]
    return pd.DataFrame(rows)


def grey(colour: str) -> float:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_lines_have_the_names_that_people_gave_and_differ_in_a_grey_print() -> None:
    figure = curve(points(), "p99_ttft", ["scenario"], SLO(ttft_s=0.3))
    assert [line.name for line in figure.data] == ["FCFS", "my &lt;own> class", "both"]
    assert len({line.line.dash for line in figure.data}) == len(NAMES)
    assert len({line.marker.symbol for line in figure.data}) == len(NAMES)
    greys = sorted(grey(line.line.color) for line in figure.data)
    assert min(np.diff(greys)) > 0.1
    assert list(figure.data[0].x) == [1.0, 2.0, 4.0]
    assert list(figure.data[0].y) == pytest.approx([100.0, 200.0, 400.0])
    assert figure.layout.yaxis.title.text == "p99 TTFT, ms"
    (limit,) = figure.layout.shapes
    assert limit.y0 == pytest.approx(300.0)
    assert figure.alt


def test_it_is_a_column_wide_and_overload_does_not_flatten_it() -> None:
    figure = curve(points(top_s=90.0), "p50_tpot", ["scenario"], SLO(tpot_s=1.0))
    assert figure.layout.width * 72 / 96 == 240
    assert tuple(figure.layout.yaxis.range) == (0, 4.0)
    assert figure.layout.font.family.startswith("Times")


def test_several_keys_stand_in_the_name_and_one_line_needs_no_legend() -> None:
    varied = points().rename(columns={"scenario": "batching"}).assign(max_seqs=16)
    figure = curve(varied, "goodput", ["batching", "max_seqs"], None)
    assert figure.data[0].name == "batching FCFS, max_seqs 16"
    alone = curve(points(("FCFS",)), "attainment", ["scenario"], None)
    assert alone.layout.showlegend is False


def test_points_that_could_not_be_simulated_are_left_out() -> None:
    some = points()
    some.loc[some["scenario"] == "FCFS", "ttft_s_p99"] = np.nan
    figure = curve(some, "p99_ttft", ["scenario"], SLO(ttft_s=0.3))
    assert [len(line.x) for line in figure.data] == [0, 3, 3]
    curve(some.assign(ttft_s_p99=np.nan), "p99_ttft", ["scenario"], SLO(ttft_s=0.3))


@pytest.mark.parametrize(
    ("name", "rates", "complaint"),
    [("p98_ttft", 2, "did you mean 'p99_ttft'"), ("p99_ttft", 1, "two rates or more")],
)
def test_what_cannot_be_drawn_is_one_line(name: str, rates: int, complaint: str) -> None:
    with pytest.raises(ServetwinError, match=complaint):
        require_curve(name, rates)


def test_a_sweep_draws_itself_to_a_file(tmp_path: Path) -> None:
    swept = SweepPoints(points())
    swept.attrs["slo"] = SLO(ttft_s=0.3)
    figure = swept.plot("p99_ttft", tmp_path / "curve.html")
    assert len(figure.data) == len(NAMES)
    assert (tmp_path / "curve.html").read_bytes().startswith(b"<!DOCTYPE html>")
    swept.plot("p90_e2e", str(tmp_path / "curve.html"))  # replaces the picture
    assert type(swept.groupby("scenario")["ttft_s_p99"].agg(["max"])) is (pd.DataFrame)
    with pytest.raises(ServetwinError, match="unknown extension"):
        swept.plot("p99_ttft", tmp_path / "curve.eps")
