"""Engines to measure."""

import httpx
import pytest

from servetwin.app.serving.engines import engine_at
from servetwin.workloads.errors import EngineError

pytest.importorskip("torch")


@pytest.mark.parametrize("answer", [{}, [], {"detail": "Not Found"}, None])
def test_an_endpoint_that_is_not_ours_is_named_in_words(
    monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    def get(url: str, **_: object) -> httpx.Response:
        if answer is None:
            raise httpx.ConnectError("refused")
        return httpx.Response(200, json=answer)

    monkeypatch.setattr(httpx, "get", get)
    with pytest.raises(EngineError) as error:
        engine_at("http://127.0.0.1:9")
    assert str(error.value) == (
        "http://127.0.0.1:9: not the bundled engine with a step log "
        "(servetwin serve --step-log FILE)"
    )
