"""Engines to measure."""

import pytest

from servetwin.app.serving.engines import engine_at
from servetwin.workloads.errors import EngineError

pytest.importorskip("torch")


def test_an_endpoint_that_is_not_ours_is_named() -> None:
    with pytest.raises(EngineError, match="does not answer /servetwin/engine"):
        engine_at("http://127.0.0.1:9")
