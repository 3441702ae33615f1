"""``--overheads`` on kernel tables."""

import json
from pathlib import Path

import pytest

from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.command import refused, servetwin
from tests.support.made_kernels import install_made_package

ENGINE = """
from tests.support.made_kernels import MadeKernels


class EngineHandle:
    @classmethod
    def compile(cls, *args, **kwargs):
        return MadeKernels()
"""
SERVER = ("--model", "llama-3.1-8b", "--hardware", "h100")
KERNELS = (*SERVER, "--times", "kernels")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    requests = (Request(f"r{i}", 2.0 * i, 100, 20) for i in range(5))
    write_trace(Trace(tuple(requests), "made"), path)
    return path


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install_made_package(monkeypatch, tmp_path / "package", ENGINE)


def test_a_lone_request_takes_each_term_as_often_as_it_occurs(trace: Path) -> None:
    terms = "step_s=0.001,prefill_step_s=0.01,request_s=0.05,prompt_token_s=1e-5"
    plain, loaded = (
        json.loads(servetwin("replay", trace, *KERNELS, *more, "--replications", "0", "--json").out)
        for more in ((), ("--overheads", terms))
    )
    ttft_s = loaded["ttft_s"]["mean"] - plain["ttft_s"]["mean"]
    tpot_s = loaded["tpot_s"]["mean"] - plain["tpot_s"]["mean"]
    assert ttft_s == pytest.approx(0.001 + 0.01 + 0.05 + 100e-5, abs=1e-9)
    assert tpot_s == pytest.approx(0.001, abs=1e-9)
    assert (plain.get("overheads"), loaded["overheads"]) == (None, terms)


def test_the_screen_says_that_overheads_are_fitted(trace: Path) -> None:
    done = servetwin("replay", trace, *KERNELS, "--overheads", "fitted")
    assert done.code == 0
    assert "overheads: step_s " in done.out
    assert "no physics" in done.out
    assert "overheads" not in servetwin("replay", trace, *KERNELS).out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            (*SERVER, "--overheads", "fitted"),
            "--overheads: goes with --times kernels or layers:DIR",
        ),
        ((*KERNELS, "--overheads", "step_s=9"), "step_s: 9 is not possible; it must be 0 to 0.01"),
        (
            (*SERVER, "--times", "kernels:trtllm", "--overheads", "fitted"),
            "none were fitted for trtllm",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    trace: Path, options: tuple[str, ...], says: str
) -> None:
    assert says in refused("replay", trace, *options)
