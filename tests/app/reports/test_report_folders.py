"""From folders to runs, and which of them belong together."""

import json
from pathlib import Path

import pytest

from servetwin.app.reports.report_folders import find_runs
from servetwin.app.verdict.claims import compare
from servetwin.sim.records.run import RunError, load_run
from tests.support.report_runs import pretended, simulated

pytest.importorskip("plotly", reason="reports need plotly")


@pytest.fixture(scope="module")
def predicted_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("runs") / "predicted")


def test_a_verification_keeps_its_own_verdict(predicted_folder: Path, tmp_path: Path) -> None:
    predicted = load_run(predicted_folder)
    predicted.save(tmp_path / "predicted")
    for number in (1, 2):
        pretended(predicted).save(tmp_path / f"measured-{number}")
    found = compare(predicted, [pretended(predicted)] * 2, {"ttft_s.p99": 0.01})
    (tmp_path / "verdict.json").write_text(json.dumps({"comparison": found.as_dict()}))
    runs, (trial,) = find_runs([tmp_path])
    names = [named.name for named in runs]
    assert names == [f"{tmp_path.name}/{n}" for n in ("predicted", "measured-1", "measured-2")]
    assert trial.comparison == found
    assert [named.name for named in (trial.predicted, *trial.measured)] == names
    (tmp_path / "verdict.json").write_text("{}")
    with pytest.raises(RunError, match=r"verdict.json: not a readable verdict"):
        find_runs([tmp_path])


def test_each_load_of_a_verification_keeps_its_own_verdict(
    predicted_folder: Path, tmp_path: Path
) -> None:
    predicted = load_run(predicted_folder)
    limits = {0.5: {"ttft_s.p99": 0.01}, 0.7: {"tpot_s.mean": 0.02}}
    found = {at: compare(predicted, [pretended(predicted)], limit) for at, limit in limits.items()}
    folder = tmp_path / "out" / "static+paged"
    for at in limits:
        predicted.save(folder / f"at-{100 * at:.0f}" / "predicted")
        pretended(predicted).save(folder / f"at-{100 * at:.0f}" / "measured-1")
    levels = [{"utilisation": at, "comparison": one.as_dict()} for at, one in found.items()]
    (folder / "verdict.json").write_text(json.dumps({"levels": levels}))
    for given in (tmp_path / "out", folder, *folder.glob("at-*")):
        _, trials = find_runs([given])
        loads = [float(given.name[3:]) / 100] if "at-" in given.name else [0.5, 0.7]
        assert [trial.comparison for trial in trials] == [found[load] for load in loads]


def test_a_verdict_may_have_its_load_tests_at_another_rate(
    predicted_folder: Path, tmp_path: Path
) -> None:
    """They are paced by the capacity of the moment."""
    predicted = load_run(predicted_folder)
    measured = pretended(predicted)
    measured.requests["scheduled_s"] *= 1.02
    predicted.save(tmp_path / "at-90" / "predicted")
    measured.save(tmp_path / "at-90" / "measured-1")
    assert find_runs([tmp_path])[1] == []
    found = compare(predicted, [measured], {"ttft_s.p99": 0.01})
    level = {"utilisation": 0.9, "comparison": found.as_dict()}
    (tmp_path / "verdict.json").write_text(json.dumps({"levels": [level]}))
    _, (trial,) = find_runs([tmp_path])
    assert trial.comparison == found


def test_the_same_name_twice_is_told_apart(predicted_folder: Path, tmp_path: Path) -> None:
    other = load_run(predicted_folder).save(tmp_path / "predicted")
    runs, _ = find_runs([predicted_folder, other, other])
    above = (predicted_folder.parent.name, tmp_path.name)
    assert [named.name for named in runs] == [f"{name}/predicted" for name in above]


def test_names_are_as_short_as_tells_them_apart(predicted_folder: Path, tmp_path: Path) -> None:
    run = load_run(predicted_folder)
    places = ["a/x/out", "b/x/out", "c/y/other"]
    runs, _ = find_runs([run.save(tmp_path / place) for place in places])
    assert [named.name for named in runs] == ["a/x/out", "b/x/out", "other"]


def test_a_load_test_keeps_the_verdict_that_it_printed(
    predicted_folder: Path, tmp_path: Path
) -> None:
    """One that was cut off before it could print has that; a damaged file is passed over."""
    run = pretended(load_run(predicted_folder))
    run.save(tmp_path / "run")
    report = tmp_path / "run" / "report.json"
    for content, verdict in (
        ('{"verdict": "FAIL", "reason": "ttft_p99>1s: it is 2 s"}', "FAIL: ttft_p99>1s: it is 2 s"),
        ("[" * 100_000, ""),
        ("[]", ""),
        ('{"verdict": "PASS"}', ""),
    ):
        report.write_text(content)
        ((named,), _) = find_runs([tmp_path / "run"])
        assert named.verdict == verdict
    report.unlink()
    run.extra["delivered"] |= {"interrupted": True, "stopped": "killed after 5 of 9 requests"}
    run.save(tmp_path / "run")
    ((named,), _) = find_runs([tmp_path / "run"])
    assert named.verdict == "CUT OFF: killed after 5 of 9 requests"
