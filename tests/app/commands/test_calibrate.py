"""``calibrate``: over HTTP, on a simulated server in real time, and to a measured point."""

import json
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
from servetwin.sim.step_times.profile import load_profile
from tests.app.commands.test_replay_overheads import ENGINE, KERNELS
from tests.support.command import refused, servetwin
from tests.support.made_kernels import install_made_package

SETTINGS = {"max_model_len", "batching", "token_budget", "max_seqs", "prefix_cache", "kv_tokens"}


def test_it_writes_what_it_learned_and_what_it_did_not(black_box_url: str, tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    limits = ("--max-minutes", 1.0, "--max-requests", 80, "--rounds", 1)
    done = servetwin("calibrate", "--url", black_box_url, "--out", out, *limits)
    assert done.code == 0, done.err
    profile = load_profile(str(out))
    found = profile.engine["identified"]
    assert {*found["identified"], *found["not identified"]} >= SETTINGS
    assert found["identified"]["max_model_len"] == 200
    assert profile.origin == "measured here"
    assert profile.machine["endpoint"].startswith("127.0.0.1:")
    assert f"profile: {out}" in done.out


def test_an_endpoint_that_is_gone_is_one_line() -> None:
    done = servetwin("calibrate", "--url", "http://127.0.0.1:9")
    assert done.code == 1
    assert "is the server running?" in done.err
    assert len(done.err.splitlines()) == 1


POINT = "ttft=0.15,tpot=0.013,users=4,prompt=400,output=30"


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install_made_package(monkeypatch, tmp_path / "package", ENGINE)


def test_the_point_is_met_and_the_next_command_said() -> None:
    done = servetwin("calibrate", *KERNELS, "--point", POINT)
    assert done.code == 0
    shown = dict(line.split(": ", 1) for line in done.out.splitlines())
    for name, measured_ms in (("TTFT", 150.0), ("TPOT", 13.0)):
        was, here = (float(part.split()[0]) for part in shown[name].split(","))
        assert was == measured_ms
        assert here == pytest.approx(measured_ms, rel=0.08)
    assert "factor " in shown["overheads"]
    text = json.loads(servetwin("calibrate", *KERNELS, "--point", POINT, "--json").out)["overheads"]
    assert shown["next"].endswith(f"--overheads {text}")


def test_a_point_of_another_server_is_doubted() -> None:
    done = servetwin("calibrate", *KERNELS, "--point", POINT.replace("0.013", "0.13"))
    assert "not met: is it of this model, format, layout and version?" in done.out


@pytest.mark.parametrize(
    ("more", "point", "says"),
    [
        (KERNELS, "ttft=0.1,users=4,prompt=4,output=4", "--point: tpot is missing; write ttft="),
        (KERNELS, f"{POINT},rate=2", "--point: no part 'rate'; write ttft=SECONDS"),
        (KERNELS, POINT.replace("0.013", "fast"), "--point: tpot=fast: seconds above 0"),
        (KERNELS, POINT.replace("users=4", "users=1.5"), "users=1.5: a whole number above 0"),
        (
            (*KERNELS[:4], "--times", "sheet"),
            POINT,
            "--point: goes with --model and --times kernels or layers:DIR",
        ),
    ],
)
def test_a_point_that_does_not_do_is_refused(more: tuple[str, ...], point: str, says: str) -> None:
    assert says in refused("calibrate", *more, "--point", point)
