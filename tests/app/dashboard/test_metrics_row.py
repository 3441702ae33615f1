"""The row of metrics: labels with their units."""

from servetwin.app.dashboard.metrics_row import PARTS, shown_metrics
from servetwin.app.dashboard.simulations import simulate
from servetwin.app.scenario.files.scenario_file import parse_scenario


def test_labels_have_their_units() -> None:
    assert [shown.label for shown in shown_metrics()] == [
        "TTFT p90, ms", "TTFT p99, ms", "TPOT p90, ms", "TPOT p99, ms", "output tokens/s",
        "goodput, requests/s", "SLO attainment, %",
    ]  # fmt: skip


def test_every_part_that_can_be_chosen_is_in_the_summary() -> None:
    summary = simulate(parse_scenario("workload: {requests: 40}", "t")).summary
    metrics = shown_metrics(PARTS)
    assert len(metrics) == 2 * len(PARTS) + 3
    found = {shown.path: shown.value(summary) or 0.0 for shown in metrics}
    assert found["ttft_s.mean"] == 1000 * summary["ttft_s"]["mean"]
    assert found["tpot_s.p50"] <= found["tpot_s.p90"] <= found["tpot_s.p99"]
    assert [shown.path for shown in shown_metrics([])] == [
        "output_throughput_tokens_per_s", "goodput_per_s", "slo_attainment"
    ]  # fmt: skip
