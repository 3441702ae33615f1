"""Run folders of colleagues: what is kept of an archive, and what is refused."""

import re
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
import yaml

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app.dashboard.kept_runs import received_run
from servetwin.app.dashboard.kept_runs.folder import zipped
from servetwin.app.dashboard.kept_runs.received_run import receive_run
from servetwin.app.reports.report_folders import find_runs
from servetwin.sim.explain.explain import servers_of
from servetwin.sim.records.run import Run, RunError, load_run
from tests.support.dashboard_runs import quantised
from tests.support.figure_frames import load_test


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    root.mkdir()
    return root


def archive(*files: tuple[str, bytes]) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name, content in files:
            made.writestr(name, content)
    return buffer.getvalue()


def sent(run: Run, place: str = "theirs/") -> list[tuple[str, bytes]]:
    """The files of a run folder as they lie in an archive."""
    return [(place + name, data) for name, data in run.files() if data is not None]


def test_what_was_downloaded_can_be_opened_elsewhere(root: Path, tmp_path: Path) -> None:
    for name in ("group/predicted", "group/measured-1"):
        load_test(12).save(tmp_path / name)
    name = receive_run(root, "group.zip", zipped(tmp_path, "group"))
    assert name == "group"
    assert len(find_runs([root / name])[0]) == 2
    assert receive_run(root, "group.zip", zipped(tmp_path, "group")) == "group-2"


@pytest.mark.parametrize(
    ("place", "file_name", "name"),
    [
        ("theirs/", "x.zip", "theirs"),
        ("", "from Ann (1).zip", "from-Ann-1"),
        ("a/b/", "x.zip", "b"),
        ("", "...zip", "received"),
        ("..hidden/", "x.zip", "hidden"),
    ],
)
def test_it_has_the_name_of_its_folder_or_of_the_archive(
    root: Path, place: str, file_name: str, name: str
) -> None:
    content = archive(*sent(load_test(5), place), ("__MACOSX/._meta.json", b"x"), ("n.txt", b""))
    assert receive_run(root, file_name, content) == name
    assert len(load_run(root / name).requests) == 5
    assert {path.suffix for path in (root / name).rglob("*")} <= {".json", ".yaml", ".parquet"}


def test_no_scenario_names_a_file_of_this_machine(root: Path) -> None:
    run = load_test(5)
    run.kind = "simulation"
    run.scenario = {
        "trace": "/home/ann/trace.jsonl",
        "profile": ["/etc/profile.json", "base-cpu"],
        "techniques": ["weight-int4:at=/etc/x"],
        "policies": {"batching": "/home/ann/mine.py:Mine", "kv": "paged"},
    }
    receive_run(root, "x.zip", archive(*sent(run)))
    kept = load_run(root / "theirs")
    assert kept.scenario["trace"] == "trace.jsonl"
    assert kept.scenario["profile"] == ["profile.json (a file of another machine)", "base-cpu"]
    assert kept.scenario["policies"]["kv"] == "paged"
    assert "/" not in yaml.safe_dump(kept.scenario)
    assert servers_of(kept) == ()


def test_a_server_of_shipped_names_is_built_again(root: Path) -> None:
    outcome = quantised()
    policies = outcome.scenario.policies.as_dict()
    server = {"model": "llama-2-7b", "gpu": "a100-80gb", "policies": policies}
    run = replace(outcome.run, scenario=server)
    receive_run(root, "x.zip", archive(*sent(run)))
    assert len(servers_of(load_run(root / "theirs"))) == 1


def bomb() -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("summary.json", b" " * 3_000_000)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"no archive", r"x.zip: not a readable zip archive \(File is not a zip file\); zip the"),
        (archive(*sent(load_test(3)))[:-200], "not a readable zip archive"),
        (archive(("../meta.json", b"{}")), "'../meta.json' leads out of the archive"),
        (archive(("/etc/meta.json", b"{}")), "'/etc/meta.json' leads out of the archive"),
        (archive(("C:\\meta.json", b"{}")), "leads out of the archive"),
        (archive(("notes.txt", b"hello")), "no file of a run folder in it"),
        (archive(("a/meta.json", b"{")), "not a readable run folder"),
        (archive(("a/x.json", b"{}")), "neither a run folder nor a folder of runs"),
        (archive(("a.json", b"{}"), ("a.json/b.json", b"{}")), "not a readable zip archive"),
        (bomb(), r"1 files of 3 MB; at most 2,000 files of 1 MB"),
        (archive(*((f"{i}.json", b"") for i in range(2_001))), "2,001 files"),
    ],
)
def test_what_is_no_run_is_refused_and_leaves_nothing(
    content: bytes, problem: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(received_run, "MOST_ZIP_BYTES", 1_000_000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RunError, match=problem) as refused:
        receive_run(root, "x.zip", content)
    assert "\n" not in str(refused.value)
    assert not re.search(rf"{re.escape(str(tmp_path))}", str(refused.value))
    assert list(tmp_path.rglob("*")) == [root]
