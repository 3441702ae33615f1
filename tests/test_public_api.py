"""``from servetwin import NAME``: lazily, and with the nearest name where there is none."""

import subprocess
import sys

import pytest

import servetwin
from servetwin.workloads.program.package import own_version


def test_a_public_name_is_imported_when_it_is_used() -> None:
    from servetwin import PolicyConfig, load_trace, simulate

    assert simulate.__module__ == "servetwin.sim.core.simulate"
    assert load_trace.__name__ == "read_trace"
    assert PolicyConfig().max_seqs > 0
    assert servetwin.__version__ == own_version()
    assert set(dir(servetwin)) == {*servetwin.__all__, "__version__"}


@pytest.mark.parametrize(("name", "near"), [("simulat", "simulate"), ("Polices", "PolicyConfig")])
def test_a_name_that_is_not_public_names_the_nearest(name: str, near: str) -> None:
    line = f"servetwin has no public name {name!r}; did you mean {near!r}?"
    with pytest.raises(ImportError) as imported:
        exec(f"from servetwin import {name}")
    assert str(imported.value) == line
    with pytest.raises(AttributeError) as used:
        getattr(servetwin, name)
    assert str(used.value) == line
    assert not hasattr(servetwin, "__wrapped__")


def test_importing_servetwin_is_light() -> None:
    program = (
        "import sys, servetwin; heavy = {'numpy', 'pandas', 'pydantic', 'torch'}; "
        "assert not heavy & set(sys.modules); import servetwin.sim; from servetwin import policies"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_sweep_has_a_row_for_every_scenario_and_rate() -> None:
    from servetwin import SLO, Deployment, sample_trace, sweep
    from servetwin.workloads.transform import limit

    layouts = {str(n): Deployment(model="phi-4", gpu="l40s", layout=f"tp={n}") for n in (1, 8)}
    found = sweep(
        limit(sample_trace(), 20),
        {name: deployment.scenario() for name, deployment in layouts.items()},
        (1.0, 4.0),
        slo=SLO(ttft_s=0.5),
    )
    assert list(zip(found["scenario"], found["rate_per_s"], strict=True)) == [
        ("1", 1.0), ("8", 1.0), ("1", 4.0), ("8", 4.0),
    ]  # fmt: skip
    assert set(found["problem"]) == {""}
    assert (found["ttft_s_p99"] > 0).all()
