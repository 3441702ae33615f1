"""The GPU session's parts, results and table, tried without a GPU."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from servetwin.app.cli import app
from tests.benchmarks import gpu_session
from tests.benchmarks.gpu_session import POLICIES, SessionPart, run_session, session_parts, table

SHAPES = ["tiny", "llama-8b"]
METRIC = {
    "metric": "",
    "predicted": {"value": 0.1},
    "measured": 0.098,
    "error": 0.0204,
    "error_low": -0.01,
    "error_high": 0.05,
}
FIGURE = {
    "model": "tiny", "step": "decode 1", "seconds": 0.004, "device_seconds": 0.0039,
    "share": 0.8, "target": 0.75,
}  # fmt: skip


def verdict(outcome: str = "holds") -> dict[str, Any]:
    metrics = [{**METRIC, "metric": name} for name in gpu_session.METRICS]
    metrics[-1]["error"] = None
    comparison = {"metrics": metrics}
    return {"outcome": outcome, "comparison": comparison, "identical_steps": 9, "steps": 10}


def printing(record: dict[str, Any], exit_code: int = 0) -> tuple[str, str]:
    return ("-c", f"print({json.dumps(record)!r}); raise SystemExit({exit_code})")


def counting(path: Path) -> tuple[str, str]:
    return ("-c", f"open({str(path)!r}, 'a').write('x')")


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_every_shape_is_calibrated_and_verified_under_every_policy(
    tmp_path: Path, device: str
) -> None:
    first, second, tests, *parts = session_parts(tmp_path, SHAPES, device)
    assert [first.name, second.name, tests.name] == ["speed llama-8b", "speed tiny", "GPU tests"]
    assert "tests/engine/core/test_runner.py" in tests.arguments
    assert "tests/engine/attention/test_table_attention.py" in tests.arguments
    expected = [f"calibrate {shape}" for shape in SHAPES]
    expected += [f"verify {shape} {policy}" for shape in SHAPES for policy in POLICIES]
    assert [part.name for part in parts] == expected
    commands = getattr(get_command(app), "commands")  # noqa: B009
    for part in parts:
        module, name, command, *arguments = part.arguments
        assert (module, name) == ("-m", "servetwin")
        given = commands[command].make_context(command, arguments).params
        assert given["device"] == device
        assert given["dtype"] == ("bfloat16" if device == "cuda" else "float32")


def test_each_part_is_kept_as_it_is_done_and_a_later_session_goes_on(tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "out"
    parts = [
        SessionPart("GPU tests", counting(runs)),
        SessionPart("verify tiny continuous+paged", printing(verdict("refuted"), exit_code=1)),
        SessionPart("verify tiny static+paged", ("-c", "raise SystemExit('no memory')")),
    ]

    def cut_short() -> Any:
        yield from parts[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_session(out, cut_short())
    kept = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [(one["part"], one["exit_code"]) for one in kept] == [
        ("GPU tests", 0),
        ("verify tiny continuous+paged", 1),
    ]
    assert "| tiny | continuous+paged |" in (out / "table.md").read_text()
    assert run_session(out, parts) == 1
    assert runs.read_text() == "xx", "a part without a record runs again"
    kept = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [one["part"] for one in kept[2:]] == ["GPU tests", "verify tiny static+paged"]
    assert "no memory" in (out / "log.txt").read_text()


def test_a_part_that_takes_too_long_does_not_stop_the_rest(tmp_path: Path) -> None:
    parts = [
        SessionPart("GPU tests", ("-c", "import time; time.sleep(60)")),
        SessionPart("verify tiny static+paged", printing(verdict())),
    ]
    assert run_session(tmp_path, parts, limit_s=2.0) == 1
    assert "took more than 2 s" in (tmp_path / "log.txt").read_text()
    found = (tmp_path / "table.md").read_text()
    assert "| GPU tests | 124 | 2 |" in found
    assert "| tiny | static+paged |" in found


def test_a_part_that_is_ended_takes_along_what_it_started(tmp_path: Path) -> None:
    """A server that is left behind would keep the memory of the card."""
    pid_file = tmp_path / "pid"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(pid_file)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(60)"
    )
    assert run_session(tmp_path, [SessionPart("GPU tests", ("-c", code))], limit_s=2.0) == 1
    stat, until_s = Path(f"/proc/{pid_file.read_text()}/stat"), time.monotonic() + 10
    while _is_alive(stat):  # a killed process ends when the kernel comes to it
        assert time.monotonic() < until_s
        time.sleep(0.01)


def _is_alive(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_a_part_prints_appears_at_once_but_for_its_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "print('decode 1: 4 ms'); print('{\"figures\": []}')"
    assert run_session(tmp_path, [SessionPart("speed tiny", ("-c", code))]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["== speed tiny", "   decode 1: 4 ms"]
    assert "== speed tiny: exit code 0 after" in said[2]


@pytest.mark.slow
def test_when_the_time_is_up_the_rest_is_left_to_the_next_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that the end of the time cuts short keeps the figures that it has, and runs again."""
    monkeypatch.setattr(gpu_session, "SHORTEST_S", 1.0)
    figure = json.dumps({"figures": [FIGURE]})
    parts = [
        SessionPart("GPU tests", printing({"passed": 3})),
        SessionPart("speed tiny", ("-c", f"import time; print({figure!r}); time.sleep(60)")),
        SessionPart("verify tiny static+paged", printing(verdict())),
    ]
    assert run_session(tmp_path, parts, minutes=3 / 60) == 0
    assert "parts left: 2. Run it again to go on." in capsys.readouterr().out
    assert (
        "| tiny | decode 1 | 4.000 | 3.900 | 80.0 % | target 75 % |"
        in (tmp_path / "table.md").read_text()
    )
    assert run_session(tmp_path, parts[::2]) == 0
    said = capsys.readouterr().out
    assert "== verify" in said
    assert "== GPU tests" not in said


def test_the_table_has_predicted_and_measured_figures_in_their_units() -> None:
    fit = {"held_out_error": 0.02, "drift": 0.01, "steps": 500}
    results = [
        {"part": "verify llama-1b static+paged", "exit_code": 0, "took_s": 9, "record": verdict()},
        {
            "part": "calibrate llama-1b",
            "exit_code": 0,
            "took_s": 8,
            "record": {"layouts": {"paged": fit}},
        },
        {"part": "calibrate llama-8b", "exit_code": 124, "took_s": 240, "record": {}},
    ]
    found = table(results).splitlines()
    assert (
        "| llama-1b | static+paged | 0.1 / 0.098 (+2.0 %, -1.0 to +5.0) "
        "| 100 / 98 (+2.0 %, -1.0 to +5.0) | 100 / 98 (+2.0 %, -1.0 to +5.0) "
        "| - | 9 of 10 | holds |"
    ) in found
    assert "| llama-1b | paged | 500 | 2.0 % | 1.0 % |" in found
    assert "| calibrate llama-8b | 124 | 240 |" in found


def test_without_a_device_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_session, "has_cuda", lambda: False)
    assert gpu_session.main(["--out", str(tmp_path / "out")]) == 2
    assert "sees no CUDA device" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
