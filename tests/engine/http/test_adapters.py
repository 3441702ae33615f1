"""Adapters over HTTP: a request names one as its model."""

from pathlib import Path

import httpx
import pytest

from servetwin.app.scenario.options.engine import EngineChoice
from servetwin.engine.http.engine_server import EngineServer
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import model_preset
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError
from tests.support.adapter_folders import adapter_tensors, write_adapter

TINY = model_preset("tiny")


@pytest.mark.slow
def test_a_request_names_an_adapter_as_its_model(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path, adapter_tensors(TINY, ["v_proj", "down_proj"], 1))
    options = ServeOptions(
        model="tiny",
        policies=PolicyConfig(kv_tokens=1024, max_model_len=256),
        computation=Computation(device="cpu", adapters=(("legal", str(folder)),)),
    )
    with EngineServer(options) as server, httpx.Client(base_url=server.url) as client:
        cards = client.get("/v1/models").json()["data"]
        assert [(card["id"], card.get("parent")) for card in cards] == [
            ("tiny", None),
            ("legal", "tiny"),
        ]
        assert client.get("/v1/models/legal").json()["id"] == "legal"
        texts = {}
        for model in ("tiny", "legal"):
            body = {"model": model, "prompt": "hello", "max_tokens": 12, "ignore_eos": True}
            answer = client.post("/v1/completions", json=body).json()
            assert answer["model"] == model
            texts[model] = answer["choices"][0]["text"]
        assert texts["tiny"] != texts["legal"]
        refused = client.post("/v1/completions", json={"model": "medical", "prompt": "a"})
        assert refused.status_code == 404
        assert refused.json()["error"]["message"] == (
            "model: 'medical' is not served here; 'tiny' and 'legal' are"
        )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("legal",), "--adapter legal: must be NAME=FOLDER"),
        (("=x",), "--adapter =x: must be NAME=FOLDER"),
        (("a=x", "a=y"), "--adapter a=y: the name 'a' is given twice"),
        (("tiny=x",), "--adapter tiny=x: the name 'tiny' is given twice"),
    ],
)
def test_adapters_have_names_of_their_own(given: tuple[str, ...], message: str) -> None:
    with pytest.raises(EngineError) as caught:
        EngineChoice("tiny", adapter=given).computation()
    assert str(caught.value) == message
