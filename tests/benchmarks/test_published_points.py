"""A row of published points as a server and a load; what is shipped, fitted anew."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from servetwin.app.calibration.point import ServerUnderLoad, means_s
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.step_times.tables import KernelTable
from servetwin.sim.step_times.tables.kernel_library import installed_package
from servetwin.sim.step_times.tables.server_overheads import ServerOverheads
from tests.benchmarks import published, published_overheads, published_table
from tests.benchmarks.published_fit import expert_shares
from tests.benchmarks.published_points import NotExpressed, Point, read_points
from tests.benchmarks.published_rows import Deployment, Load, Row
from tests.benchmarks.published_table import FILE
from tests.support.made_kernels import MadeKernels

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
    assert sum(not request.parent_ids for request in requests) == 2
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
    with pytest.raises(NotExpressed, match="acceptance is not published: github a/b c"):
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


TRUTH = ServerOverheads(step_s=4e-4, prefill_chunk_s=0.02, prefill_row_s=2e-6, most_chunks=3)
TABLE = KernelTable(MadeKernels(), "made")


def made_rows(*_: object) -> Iterator[Row]:
    """Yield rows of servers with known overheads; the older version's chunks take longer."""
    for version, chunk_s in (("0.15.1", 0.03), ("0.19.0", 0.02)):
        for model in ("a", "b"):
            deployment = Deployment(model, "h100", Layout(), None, "vllm", version)
            for users in (2, 6):
                load = Load(users, 400, 30)
                server = ServerUnderLoad(load.trace(), 1, 1, TABLE, published.policies("vllm", 400))
                means = 1e3 * means_s(server.run(replace(TRUTH, prefill_chunk_s=chunk_s)))
                measured = dict(zip(("ttft_ms", "tpot_ms"), means.tolist(), strict=True))
                yield Row("made", deployment, load, measured)


def test_overheads_are_fitted_anew_in_the_form_that_is_shipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(published, "_opened", lambda deployment: TABLE)
    monkeypatch.setattr(published, "_fits", lambda *_: True)
    monkeypatch.setattr(published_overheads, "sample_rows", made_rows)
    fitted = published_overheads.refitted("made")
    assert fitted.keys() == json.loads(published_overheads.FILE.read_text()).keys()
    old, new = fitted["fits"]
    assert (old["versions"], new["versions"]) == (["0.15", "0.17"], ["0.19", "0.19"])
    for terms, chunk_s in ((old["terms"], 0.03), (new["terms"], 0.02)):
        assert terms["prefill_chunk_s"] == pytest.approx(chunk_s, rel=0.1)
        assert terms["most_chunks"] == 3
    assert fitted["moves"]["vllm"]["pairs"] == 4
    assert 0.05 < fitted["moves"]["vllm"]["ttft"] < 0.5


def test_efficiencies_are_fitted_anew_in_the_form_that_is_shipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    half = points(tmp_path, *(row("output throughput", 500 + n) for n in range(3)))
    monkeypatch.setattr(published_table, "is_fitted", lambda _: True)
    monkeypatch.setattr(published_table, "expert_shares", lambda _: SHIPPED["experts"]["shares"])
    monkeypatch.setattr(published_table, "DEVICES", ("H100 SXM",))
    fitted = published_table.fitted_all(half, "made")
    assert fitted["servers"]["vllm"][0].keys() == SHIPPED["servers"]["vllm"][1].keys()
    assert fitted["devices"]["h100"].keys() == SHIPPED["devices"]["h100"].keys()
    assert fitted["experts"] == SHIPPED["experts"]
    nearer = published_table.misfit(half, SHIPPED | fitted)
    assert nearer < published_table.misfit(half, SHIPPED)
    assert published_table.refitted(half, "made")["devices"] == fitted["devices"]
