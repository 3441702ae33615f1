"""The energy of a run: laws, what is not known, and published measurements."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.experiments.predict import require_energy, run_energy, run_once
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.records.columns import Columns, columns_of, rows_of
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.profile import load_profile
from servetwin.sim.step_times.roofline import power
from servetwin.sim.step_times.roofline.power import full_power_s
from servetwin.sim.techniques.registry import build_setup
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.energy_points import POINTS, Point, errors, fitted, left_out, points

SETUP = build_setup("llama-3.1-8b", "h100")
LLAMA = SETUP.deployment
WATTS = 700
needs_points = pytest.mark.skipif(not POINTS.exists(), reason=f"no published points: {POINTS}")


def even(count: int, gap_s: float) -> Trace:
    """Return equal requests at even distances."""
    return Trace(tuple(Request(f"{n}", n * gap_s, 300, 40) for n in range(count)), "even")


def simulated(trace: Trace, replicas: int = 1) -> tuple[Run, Scenario]:
    scenario = replace(SETUP.scenario(), cluster=ClusterConfig(replicas=replicas))
    return run_once(trace, scenario), scenario


def made(
    decodes: int, context: int, chunks: int, rows: int, lasted_s: float, steps: int = 1
) -> Columns:
    """Return one row of equal steps; all chunks begin their prompts."""
    row = {
        "start_s": 0.0, "end_s": lasted_s, "steps": steps, "decode_sequences": decodes,
        "prefill_chunks": chunks, "rows": decodes + chunks * rows, "replica": 0,
        "decode_context_tokens": decodes * context,
        "prefill_pairs": chunks * rows * (rows + 1) // 2,
    }  # fmt: skip
    return {name: np.array([value]) for name, value in row.items()}


sizes = st.tuples(
    st.integers(1, 300), st.integers(1, 8000), st.integers(0, 3), st.integers(1, 2000)
)


@given(sizes, st.floats(1e-3, 1), st.integers(1, 50))
def test_a_device_draws_between_its_idle_and_its_design_power(
    size: tuple[int, int, int, int], lasted_s: float, steps: int
) -> None:
    shares = power.POWER["shares"]
    busy_s = full_power_s(LLAMA, made(*size, lasted_s, steps), lasted_s)
    assert shares["busy"] * lasted_s <= busy_s <= lasted_s
    longer = full_power_s(LLAMA, made(*size, 2 * lasted_s, steps), 2 * lasted_s)
    assert busy_s <= longer <= 2 * busy_s * (1 + 1e-12), "the same work, at less power"


@given(sizes)
def test_sizes_that_are_counted_as_one_are_near(size: tuple[int, int, int, int]) -> None:
    """Against the operators of the very step, without rounding."""
    decodes, context, chunks, rows = size
    shares, lasted_s = power.POWER["shares"], 0.05
    exact_s = np.array(power.peak_s(LLAMA, decodes, context, chunks, rows, 0))
    used = np.sqrt(exact_s / lasted_s) @ (shares["memory"], shares["compute"])
    expected = lasted_s * min(1.0, shares["busy"] + used)
    assert full_power_s(LLAMA, made(*size, lasted_s), lasted_s) == pytest.approx(expected, rel=0.04)


def test_energy_is_additive_over_replicas() -> None:
    run, scenario = simulated(even(60, 0.02), replicas=3)
    steps = columns_of(run.table("steps"))
    span_s = steps["end_s"].max() - steps["start_s"].min()
    alone = [rows_of(steps, steps["replica"] == replica) for replica in range(3)]
    joules = [WATTS * full_power_s(LLAMA, own, span_s) for own in alone]
    assert run_energy(run, scenario).joules == pytest.approx(sum(joules), rel=1e-12)
    assert min(joules) > power.POWER["shares"]["idle"] * WATTS * span_s


def test_idle_time_costs_idle_power() -> None:
    """Two requests far apart take what they take close to each other, and the wait between."""
    near, far = (run_energy(*simulated(even(2, gap_s))) for gap_s in (2.0, 102.0))
    waited = power.POWER["shares"]["idle"] * WATTS * 100
    assert far.joules - near.joules == pytest.approx(waited, rel=1e-6)


def test_a_replica_without_a_step_is_idle() -> None:
    run, scenario = simulated(even(1, 1.0), replicas=2)
    one = run_energy(*simulated(even(1, 1.0))).joules
    steps = columns_of(run.table("steps"))
    span_s = steps["end_s"].max() - steps["start_s"].min()
    idle = power.POWER["shares"]["idle"] * WATTS * span_s
    assert run_energy(run, scenario).joules == pytest.approx(one + idle, rel=1e-9)


def test_a_replica_that_nobody_pays_for_draws_nothing() -> None:
    """Of at most eight replicas one serves: its energy is that of one without a rule."""
    trace = even(20, 0.5)
    alone, scenario = simulated(trace)
    rule = "utilisation:target=0.9,min=1,max=8"
    ruled = replace(scenario, cluster=ClusterConfig(autoscaling=rule))
    run = run_once(trace, ruled)
    expected, found = run_energy(alone, scenario).joules, run_energy(run, ruled).joules
    assert found == pytest.approx(expected, rel=0.01)


def test_figures_follow_from_the_joules() -> None:
    run, scenario = simulated(even(20, 0.1))
    found, summary = run_energy(run, scenario), run.summary()
    per_token, watts = found.joules_per_token, found.mean_watts
    assert per_token is not None
    assert per_token.value == found.joules / summary["output_tokens"]
    assert watts.value == pytest.approx(found.joules / summary["makespan_s"], rel=1e-6)
    assert per_token.low < per_token.value < per_token.high
    assert watts.low < watts.value < watts.high


def test_all_devices_of_a_server_draw_power() -> None:
    """Ranks share the devices of their server, whatever each of them steps."""
    setup = build_setup("qwen3-30b-a3b", "h100").with_layout(Layout(dp=4, ep=4))
    scenario = setup.scenario()
    found = run_energy(run_once(even(40, 0.01), scenario), scenario)
    assert 0.33 * 4 * WATTS < found.mean_watts.value < 4 * WATTS


@pytest.mark.parametrize(
    ("model", "device", "unmeasured"),
    [
        ("llama-3.1-8b", "h100", ()),
        ("llama-3.1-8b", "l40s", ("l40s",)),
        ("qwen2.5-7b", "a100-80gb", ("a100-80gb", "qwen2.5-7b")),
    ],
)
def test_what_was_never_measured_is_named(
    model: str, device: str, unmeasured: tuple[str, ...]
) -> None:
    scenario = build_setup(model, device).scenario()
    run = run_once(even(2, 1.0), scenario)
    assert run_energy(run, scenario).unmeasured == unmeasured


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        (lambda: build_setup("llama-2-7b", "a10g").scenario(), "a10g has no 'tdp_watts'; .* 700"),
        (
            lambda: build_setup("llama-2-7b", "h100", ["speculative"]).scenario(),
            "llama-2-7b on h100: not with drafts",
        ),
        (
            lambda: Scenario(load_profile("base-cpu").policy_config(), load_profile("base-cpu")),
            "base-cpu has step times, but no bytes and FLOPs",
        ),
    ],
)
def test_what_has_no_energy_is_named_before_a_run(
    scenario: Callable[[], Scenario], message: str
) -> None:
    with pytest.raises(PolicyError, match=message):
        require_energy(scenario())


@needs_points
def test_predictions_of_published_points_are_those_of_a_run() -> None:
    """The quick sums of the fit are what ``full_power_s`` says."""
    known = points()[0][::40]
    quick = errors(known, power.POWER["shares"], measured=True)[0] + 1
    slow = [point.joules(measured=True) / point.measured_joules for point in known]
    assert quick == pytest.approx(slow, rel=0.03)


@needs_points
@pytest.mark.slow
def test_the_shipped_shares_and_intervals_are_those_of_the_fit() -> None:
    known, others = points()
    assert (len(known), others) == (402, 256)
    found = fitted(known)
    assert found == pytest.approx({name: power.POWER["shares"][name] for name in found}, abs=0.02)
    kinds: dict[str, Callable[[Point], str]] = {
        "model": lambda point: point.family,
        "device": lambda point: point.deployment.hardware.name,
    }
    off = {
        (name, measured): np.concatenate(
            [errors(out, fit, measured) for fit, out in left_out(by, known)], axis=1
        )
        for name, by in kinds.items()
        for measured in (True, False)
    }
    medians = {key: float(np.median(np.abs(both[0]))) for key, both in off.items()}
    assert medians["model", True] < 0.13
    assert medians["device", True] < 0.16
    for name, both in zip(("joules_per_token", "watts"), off["device", False], strict=True):
        ends = np.quantile(1 / (1 + both), (0.05, 0.95))
        assert power.POWER["measured_over_predicted"][name] == pytest.approx(ends, abs=0.05)
