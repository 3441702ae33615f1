"""The results on real GPUs: complete, and as the script computes them."""

import re

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.trust.real_gpus import (
    EVIDENCE,
    FILE,
    evidence_table,
    figures_by_evidence,
    measurement_in_words,
    real_gpus,
)
from servetwin.sim.records.metrics import LATENCIES
from tests.benchmarks.real_gpus import SERVERS, Server, compared, predicted

RESULTS = real_gpus()


def test_every_gpu_has_every_evidence_or_a_reason() -> None:
    assert [run["gpu"] for run in RESULTS["runs"]] == [server.gpu for server in SERVERS]
    for run in RESULTS["runs"]:
        assert [found["evidence"] for found in run["predictions"]] == list(EVIDENCE)
        for found in run["predictions"]:
            assert bool(found.get("missing")) != ("figures" in found)
            for metric in LATENCIES if "figures" in found else ():
                assert list(found["figures"][metric]) == ["mean", "p90"]


def test_errors_are_those_of_predicted_and_measured() -> None:
    rows = figures_by_evidence(RESULTS)
    assert len(rows) == 6 * sum(
        "figures" in found for run in RESULTS["runs"] for found in run["predictions"]
    )
    errors = rows["predicted"] / rows["measured"] - 1
    assert errors.tolist() == pytest.approx(rows["error"].tolist(), abs=2e-4)


def test_the_table_says_where_there_are_no_tables() -> None:
    table = evidence_table(RESULTS, "tpot_s")
    table = table[table["GPU"] == "RTX 4090"]
    assert table[table["from"] == "kernel tables"]["requests"].tolist() == ["no tables"]
    layers = table[table["from"] == "layer times"]
    assert layers["mean predicted"].tolist() == pytest.approx([32.40], rel=1e-3)
    assert layers["mean error, %"].tolist() == pytest.approx([-0.1], abs=0.05)


def test_what_was_measured_by_others_is_said() -> None:
    said = measurement_in_words(RESULTS)
    for part in ("by others", "vLLM 0.19.0", "RTX PRO 6000", "kv_tokens=41408", "MIT licence"):
        assert part in said


def test_the_file_names_no_place_and_holds_no_requests() -> None:
    text = FILE.read_text()
    assert not re.search(r"/(tmp|work|home|root)/|request_id|stamps\"?: \[", text)
    assert len(text) < 20_000


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.device)
@pytest.mark.parametrize("evidence", ["layers", "sheet"])
def test_the_script_finds_what_the_file_holds(server: Server, evidence: str) -> None:
    if not server.path.exists():
        pytest.skip(f"{server.path} is missing: real runs are not part of the repository")
    ours, measured = predicted(server, server.recorded(), evidence)
    (run,) = (run for run in RESULTS["runs"] if run["gpu"] == server.gpu)
    (kept,) = (found for found in run["predictions"] if found["evidence"] == evidence)
    assert compared(ours, measured) == kept["figures"]
