"""A calibration of the bundled engine that Ctrl-C ends keeps what was measured, and says so."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("torch")
from servetwin.app.calibration import step_log
from servetwin.app.calibration.step_log import Observed
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.fit import StepSample
from servetwin.sim.step_times.profile import load_profile
from tests.support.command import servetwin

DECODES = [BatchShape(n, 40 * n + 7 * place, n) for n in range(1, 9) for place in range(6)]
SHAPES = [*DECODES, *(BatchShape(0, 0, 0, ((0, 16 * n),)) for n in range(1, 20))]


def round_of(steps: int) -> Observed:
    """Steps of 1 ms and 10 us a row."""
    samples = [
        StepSample(shape, 1e-3 + 1e-5 * shape.rows, burst=place // 4, at_s=float(place))
        for place, shape in enumerate(SHAPES[:steps])
    ]
    return Observed(samples, [(16, 1e-3)], [(1, 1e-4)])


class Interrupted:
    """A calibrator that takes no time; server ``at`` is interrupted after ``steps``."""

    at, steps, servers = 0, 0, 0

    def __init__(self, live: ServeOptions, seed: int, prompt_salt: str | None) -> None:
        policies = live.policies.as_dict()
        self.header = {"policies": policies, "kv_tokens": 4_096, "runner": {"model": "m"}}
        Interrupted.servers += 1
        self.is_cut = Interrupted.servers > Interrupted.at

    def identify(self, rounds: int) -> None:
        if self.is_cut:
            raise KeyboardInterrupt

    def timed_rounds(self) -> list[Observed]:
        return [round_of(self.steps if self.is_cut else len(SHAPES))]


@contextmanager
def started(options: ServeOptions) -> Iterator[ServeOptions]:
    yield options


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_log, "started_engine", started)
    monkeypatch.setattr(step_log, "StepLogCalibrator", Interrupted)
    monkeypatch.setattr(Interrupted, "servers", 0)


@pytest.mark.parametrize(
    ("at", "steps", "layouts"), [(3, 9, 2), (2, 40, 2), (2, 9, 1), (1, 0, 1), (0, 40, 1)]
)
def test_what_was_measured_is_kept_and_marked(
    at: int, steps: int, layouts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Interrupted, "at", at)
    monkeypatch.setattr(Interrupted, "steps", steps)
    out = tmp_path / "profile.json"
    done = servetwin("calibrate", "--model", "tiny", "--out", out)
    assert done.code == 1
    assert "ended early: interrupted; what was measured is kept, and --overwrite be" in done.err
    profile = load_profile(str(out))
    assert profile.ended_early == "interrupted"
    assert len(profile.layouts) == layouts
    assert sum(fit.steps for fit in profile.layouts.values()) == at * len(SHAPES) + (
        steps if layouts == 2 or at < 2 else 0
    )
    assert "ended early: interrupted" in done.out.splitlines()[0]
    assert servetwin("calibrate", "--model", "tiny", "--out", out).code == 2
    monkeypatch.setattr(Interrupted, "at", 99)
    assert servetwin("calibrate", "--model", "tiny", "--out", out, "--overwrite").code == 0
    assert load_profile(str(out)).ended_early is None


def test_where_nothing_was_measured_there_is_no_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Interrupted, "at", 0)
    monkeypatch.setattr(Interrupted, "steps", 5)
    done = servetwin("calibrate", "--model", "tiny", "--out", tmp_path / "profile.json")
    assert (done.code, done.out) == (1, "")
    assert "calibration: interrupted before there were steps enough for a profile" in done.err
    assert list(tmp_path.iterdir()) == []
