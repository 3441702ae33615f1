"""A row of published points as a server and a load."""

import json
from pathlib import Path

import numpy as np
import pytest

from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.step_times.tables.kernel_library import installed_package
from tests.benchmarks.published_fit import expert_shares
from tests.benchmarks.published_points import NotExpressed, Point, read_points
from tests.benchmarks.published_table import FILE

HEAD = (
    "source,licence,date,model,precision,gpu,count,tp,pp,dp,ep,engine,version,options,load,prompts,"
    "prompt_tokens,output_tokens,metric,value,unit,exactness\n"
)


def points(tmp_path: Path, *rows: str) -> list[Point]:
    path = tmp_path / "points.csv"
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return read_points(path)


def row(metric: str, value: float, gpu: str = "H100 SXM", ep: str = "1", options: str = "") -> str:
    return (
        f"github a/b c.md,MIT,2026,Qwen3-30B-A3B,fp8,{gpu},4,4,1,1,{ep},vLLM,0.11.0,{options},"
        f"max concurrency 2,10,100.0,50.0,{metric},{value},ms,means known"
    )


def test_values_of_one_run_stand_together(tmp_path: Path) -> None:
    (point,) = points(tmp_path, row("mean TTFT", 120), row("output throughput", 100))
    assert dict(point.measured) == {"duration": 5.0, "TTFT": 0.12}
    assert (point.publisher, point.copied) == ("a", False)
    requests = point.trace().requests
    assert len(requests) == 10
    assert sum(request.parent_id is None for request in requests) == 2
    assert np.mean([request.prompt_tokens for request in requests]) == pytest.approx(100, rel=0.1)


def test_the_server_of_a_row(tmp_path: Path) -> None:
    wide, eager = points(
        tmp_path,
        row("output throughput", 1, ep="tp"),
        row("output throughput", 2, options="--max-num-seqs 8"),
    )
    assert wide.settings().layout == Layout(4, ep=4)
    assert wide.shape().quantisation.experts == "fp8-block"
    assert eager.settings().policies == {"max_seqs": 8}
    (drafts,) = points(tmp_path, row("output throughput", 3, options="spec-dec"))
    with pytest.raises(NotExpressed, match="a method that the source does not name"):
        drafts.settings()


def test_the_same_figures_on_two_gpus_are_copies(tmp_path: Path) -> None:
    both = points(
        tmp_path,
        *(row("mean TTFT", 120, gpu) for gpu in ("H100 SXM", "A100 SXM 80GB")),
        *(row("output throughput", 7, gpu) for gpu in ("H100 SXM", "A100 SXM 80GB")),
    )
    assert [point.copied for point in both] == [True, True]


SHIPPED = json.loads(FILE.read_text())


@pytest.mark.slow
def test_the_shipped_shares_of_experts_are_those_of_the_kernel_tables() -> None:
    if (package := installed_package()) is None:
        pytest.skip("no package with kernel tables is installed: pip install servetwin[kernels]")
    assert expert_shares(package) == SHIPPED["experts"]["shares"]
