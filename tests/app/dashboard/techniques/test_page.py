"""The page Techniques: effects in words, operators on the roofline, memory, tables."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")

from app import figures
from app.dashboard.techniques.data_sheet_server import DataSheetServer
from app.dashboard.techniques.effects import (
    HEADS,
    change_text,
    changes_frame,
    effects_table,
    measure,
    texts,
)
from app.dashboard.techniques.frames import PRODUCTS, intensity_grid, latency_frame, work_frame
from app.dashboard.techniques.operators import (
    breakdowns,
    operators_frame,
    peaks_flops_per_s,
    step_sentence,
)
from app.scenario.scenario_file import ScenarioFile, parse_scenario
from app.text.technique_reports import intensity_report, latency_report
from policies.batch import BatchShape
from sim.shapes.catalogue import find_hardware, find_model
from sim.step_times.roofline.breakdown import decode_breakdown, prefill_breakdown
from sim.step_times.roofline.deployment import IDEAL_KERNELS, Deployment
from sim.step_times.roofline.efficiency import IDEAL
from sim.step_times.roofline.memory import DeviceMemory
from sim.step_times.roofline.step_time import roofline_step_time
from sim.techniques.build import build_setup
from sim.techniques.effects import METRICS, Change
from sim.techniques.registry import TECHNIQUES
from tests.support.dashboard_app import Browser, page_test
from workloads.errors import PolicyError

DEPLOYMENTS = (
    (), ("tensor-parallel:ways=2",), ("pipeline-parallel",), ("fp8",), ("early-exit",),
    ("sliding-window",), ("state-space",), ("low-rank-kv",), ("flash-decoding",),
    ("weight-offload",), ("sparsity-2-4",), ("sequence-parallel",),
)  # fmt: skip


def deployment(techniques: tuple[str, ...] = (), model: str = "llama-3-8b") -> Deployment:
    return build_setup(model, "h100", techniques).deployment


@pytest.mark.parametrize("techniques", DEPLOYMENTS, ids=lambda names: "+".join(names) or "plain")
def test_operators_and_rest_are_the_simulators_step(techniques: tuple[str, ...]) -> None:
    found = deployment(techniques)
    context = (1000,) * 24
    decode = roofline_step_time(found).seconds(BatchShape(24, 24_000, 24, decode_contexts=context))
    prompt = roofline_step_time(found).seconds(BatchShape(0, 0, 0, ((0, 1000),)))
    for step, seconds in (
        (decode_breakdown(found, 24, 1000), float(decode[0])),
        (prefill_breakdown(found, 1000), float(prompt[0])),
    ):
        assert step.seconds == seconds
        taken_s = sum(placed.step_s for placed in step.operators)
        assert taken_s + step.rest_s == pytest.approx(seconds)
        assert step.share("memory") + step.share("compute") + step.rest_s / seconds == (
            pytest.approx(1)
        )


@given(
    st.sampled_from(DEPLOYMENTS), st.integers(1, 300), st.integers(16, 8000),
)  # fmt: skip
def test_no_operator_is_above_the_roof(
    techniques: tuple[str, ...], sequences: int, context: int
) -> None:
    found = deployment(techniques)
    bytes_per_s = found.hardware.memory_bytes_per_s
    for step in breakdowns(found, sequences, context).values():
        for placed in step.operators:
            roof = min(placed.flops_per_s, placed.operator.intensity * bytes_per_s)
            assert placed.attained_flops_per_s <= roof * (1 + 1e-9)


def test_ideal_operators_lie_on_the_roof() -> None:
    found = replace(deployment(), efficiency=IDEAL, kernels=IDEAL_KERNELS)
    step = decode_breakdown(found, 32, 2048)
    for placed in step.operators:
        roof = min(
            placed.flops_per_s, placed.operator.intensity * found.hardware.memory_bytes_per_s
        )
        assert placed.attained_flops_per_s == pytest.approx(roof)
    assert step.rest_s == pytest.approx(0, abs=1e-9), "rounded to 2^-48 s"


def test_decodes_are_memory_bound_and_long_prompts_compute_bound() -> None:
    steps = breakdowns(deployment(), 32, 2048)
    assert "0% compute-bound" in step_sentence("decode", steps["decode"])
    bound = {p.operator.name: p.bound for p in steps["prefill"].operators}
    assert bound["FFN"] == bound["prefill attention"] == "compute"
    assert bound["head"] == "memory", "logits of one row"


def test_the_figure_has_a_dot_for_every_operator_that_computes() -> None:
    found = deployment(("fp8",))
    frame = operators_frame(breakdowns(found, 32, 2048))
    peaks = peaks_flops_per_s(found)
    assert list(peaks) == ["fp8", "bf16"]
    figure = figures.roofline(frame, peaks, found.hardware.memory_bytes_per_s)
    dots = [trace for trace in figure.data if trace.mode == "markers"]
    assert len(dots) == (frame["flops_per_s"] > 0).sum()
    assert {dot.marker.symbol for dot in dots if "prefill" in dot.name} == {
        "circle-open", "square-open", "triangle-up-open", "diamond-open"
    }  # fmt: skip
    (roof, _) = [trace for trace in figure.data if trace.mode == "lines"]
    assert roof.x[1] == pytest.approx(1978.9e12 / 3.35e12, rel=1e-3), "the ridge of fp8"
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert "decode FFN: memory-bound" in figures.alt_text(figure)


@pytest.mark.parametrize(
    ("techniques", "context"), [((), 2048), (("kv-quantisation",), 4096), (("fp8",), 512)]
)
def test_what_fits_is_what_the_simulated_server_has_room_for(
    techniques: tuple[str, ...], context: int
) -> None:
    setup = build_setup("llama-3-8b", "h100", techniques)
    memory = DeviceMemory.of(setup.deployment, context)
    assert memory.sequences == setup.scenario().policies.kv_tokens // context
    parts = memory.parts(memory.sequences)
    assert sum(parts.values()) == pytest.approx(memory.capacity)
    assert parts["weights"] == pytest.approx(setup.deployment.resident_weight_bytes())


def test_windows_and_states_bound_what_a_sequence_takes() -> None:
    windowed = deployment(("sliding-window:window_tokens=1024",))
    assert DeviceMemory.of(windowed, 1024) == DeviceMemory.of(windowed, 8192)
    state = DeviceMemory.of(deployment(("state-space",)), 8192)
    assert state.kv_per_sequence == 0 < state.state_per_sequence


def test_weights_that_do_not_fit_leave_room_for_nobody() -> None:
    found = Deployment(find_model("llama-2-70b"), find_hardware("h100"))
    memory = DeviceMemory.of(found, 2048)
    assert memory.sequences == 0
    figure = figures.device_memory({"here": memory.parts(1)}, memory.capacity)
    assert sum(trace.x[0] for trace in figure.data) > memory.capacity / 1e9
    assert figure.layout.xaxis.title.text.startswith("memory, GB")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change("ttft_alone", -0.123, -0.127, -0.119), "better -12.3 % ±0.4"),
        (Change("throughput", -0.5, -0.6, -0.4), "worse -50.0 % ±10.0"),
        (Change("throughput", 12.5, 10.0, 15.0), "better +1250 % ±250"),
        (Change("memory", 0.005, 0.004, 0.006), "none"),
        (Change("tps_alone", 0.05, -0.05, 0.15), "unsure +5.0 % ±10.0"),
        (Change("tps_alone", None, None, None), "undefined"),
    ],
)
def test_changes_in_words(change: Change, words: str) -> None:
    assert change_text(change) == words


def test_an_effect_is_that_of_the_command_line() -> None:
    server = DataSheetServer("llama-2-7b", "a100-80gb")
    effect = measure(server, "weight-int4")
    assert effect.of("memory").sign == effect.of("tps_alone").sign == "+"
    refused = measure(server, "expert-parallel")
    assert "no experts" in (refused.refused or "")
    table = effects_table(
        ["weight-int4", "expert-parallel", "awq"],
        {"weight-int4": effect, "expert-parallel": refused},
    ).set_index("technique")
    heads = [head for head, _ in HEADS.values()]
    assert str(table.loc["weight-int4", "memory"]).startswith("better -")
    assert set(table.loc["expert-parallel", heads]) == {"not here"}
    assert set(table.loc["awq", heads]) == {""}
    assert table.loc["awq", "answers"] == "may change"
    changes = changes_frame([effect, refused])
    assert len(changes) == len(METRICS) + 1
    assert changes["refused"].notna().sum() == 1


def test_a_technique_that_is_on_is_judged_against_the_server_without_it() -> None:
    server = DataSheetServer(techniques=("fp8", "weight-offload:resident=0.5"))
    assert "weight-offload:resident=0.5" in texts(server)
    assert texts(server, ["kernels"]) == [
        name for name, technique in TECHNIQUES.items() if technique.family == "kernels"
    ]
    assert server.without("weight-offload").techniques == ("fp8",)
    changed = server.with_technique("fp8")
    assert changed.techniques == ("weight-offload:resident=0.5", "fp8")
    with pytest.raises(PolicyError, match="unknown parameter"):
        server.with_technique("fp8:bits=4")


def test_the_scenario_keeps_all_but_its_server() -> None:
    file = parse_scenario("workload: {rate_per_s: 3}\npolicies: {max_seqs: 7}", "test")
    assert DataSheetServer.of(file) is None
    found = DataSheetServer("llama-2-7b", "a100-80gb").with_technique("fp8").in_scenario(file)
    assert DataSheetServer.of(found) == DataSheetServer("llama-2-7b", "a100-80gb", ("fp8",))
    assert found.model_copy(update={"server": file.server}) == file
    assert ScenarioFile.model_validate(found.model_dump()) == found


def test_tables_are_those_of_the_command_line() -> None:
    report = intensity_report("llama-2-7b", "1,512", "128,4096", None, 2.0, "h100")
    grid = intensity_grid(report, "FFN")
    assert grid.loc["l = 128", "n = 1"] == pytest.approx(
        4096 * 11008 / (4096 * 11008 + 4096 + 11008)
    )
    assert grid.isna().to_numpy()[0].tolist() == [False, True], "more rows than keys"
    assert set(PRODUCTS) == {p for p in PRODUCTS if not intensity_grid(report, p).empty}
    state = intensity_report("mamba-2.8b", "1", "128", None, 2.0, "h100")
    assert intensity_grid(state, "projections").empty
    assert work_frame(report)["position"].tolist() == [128, 4096]
    latencies = latency_frame(
        latency_report("llama-2-13b", "h100", "1,64", "40", 1024, "bf16", "bf16", None)
    )
    assert latencies["batch"].tolist() == [1, 64]
    assert latencies["step, ms"][0] == pytest.approx(26.9e9 / 3.35e12 * 1e3, rel=0.02)


@pytest.mark.parametrize("shown", ["Effects", "Roofline", "Memory", "Tables"])
def test_every_panel_is_drawn(shown: str) -> None:
    at = page_test("techniques")
    at.session_state["techniques_show"] = shown
    at.run()
    assert not at.exception
    assert not at.error
    assert at.title[0].value == "Techniques"


def test_a_technique_is_switched_on_and_off_in_the_scenario() -> None:
    at = page_test("techniques").run()
    at.selectbox(key="techniques_chosen").set_value("weight-int4").run()
    at.text_input(key="techniques_parameters_weight-int4").set_value("group=64").run()
    press(at, "Turn on in the scenario")
    assert at.session_state["techniques"] == ["weight-int4:group=64"]
    assert at.session_state["server"] == "data sheet"
    press(at, "Turn off in the scenario")
    assert at.session_state["techniques"] == []


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("weight-int4", "group=none", "group"),
        ("tensor-parallel", "ways=3", "do not divide"),
        ("speculative", "draft=no-such", "no-such"),
        ("speculative", "draft=/etc/passwd", "names a file"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(name: str, parameters: str, said: str) -> None:
    at = page_test("techniques").run()
    at.selectbox(key="techniques_chosen").set_value(name).run()
    at.text_input(key=f"techniques_parameters_{name}").set_value(parameters).run()
    assert not at.exception
    (error,) = at.error
    assert said in error.value


def test_what_does_not_fit_is_a_verdict() -> None:
    at = page_test("techniques")
    at.session_state["techniques_show"] = "Memory"
    at.session_state["techniques_model"] = "llama-2-70b"
    at.run()
    assert not at.exception
    assert "weights alone do not fit" in at.error[0].value


def press(at: Any, label: str) -> None:
    next(button for button in at.button if button.label == label).click().run()
    assert not at.exception


@pytest.mark.browser
@pytest.mark.slow
def test_a_family_is_measured_and_stopped(chromium: Browser) -> None:
    expect = pytest.importorskip("playwright.sync_api").expect
    chromium.open("techniques?server=data+sheet", "Techniques")
    page = chromium.page
    page.get_by_role("button", name="kernels").click()
    page.get_by_role("button", name="Measure 4 techniques").click()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0, timeout=60_000)
    chromium.settle()
    page.get_by_role("button", name="kernels").click()
    page.get_by_role("button", name="Measure 46 techniques").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stopped:")).to_be_visible(timeout=30_000)
    chromium.settle()
    chromium.assert_sound()


@pytest.mark.browser
def test_a_link_restores_the_roofline(chromium: Browser) -> None:
    expect = pytest.importorskip("playwright.sync_api").expect
    chromium.open("techniques?techniques_show=Roofline&techniques_batch=100", "Techniques")
    page = chromium.page
    slider = page.get_by_role("slider", name="Sequences in a step")
    expect(slider).to_have_value("100")
    page.locator(".js-plotly-plot").first.wait_for(timeout=30_000)
    decode = page.get_by_text(re.compile(r"^Decode: .* ms a step"))
    before = decode.inner_text()
    slider.press("ArrowRight")
    page.wait_for_url("**techniques_batch=101**")
    chromium.settle()
    expect(decode).not_to_have_text(before)
    chromium.assert_sound()
