"""Labels of metrics."""

import pytest

pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app.words import METRICS


def test_words_are_defined_for_every_metric() -> None:
    assert all(metric.definition and metric.label for metric in METRICS.values())
