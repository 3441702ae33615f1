"""The row of metrics: labels with their units."""

from app.dashboard.metrics_row import SHOWN


def test_labels_have_their_units() -> None:
    assert [shown.label for shown in SHOWN] == [
        "TTFT p90, ms", "TPOT p90, ms", "output tokens/s", "goodput, requests/s",
        "SLO attainment, %",
    ]  # fmt: skip
