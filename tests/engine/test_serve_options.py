"""The options of a served engine."""

from dataclasses import replace
from pathlib import Path

import pytest

from servetwin.engine.http.http_settings import HttpSettings
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError
from tests.support.model_matrix import ALL_MODELS

POLICIES = PolicyConfig(kv_tokens=4096, max_model_len=2048, max_seqs=4)


TINY = ServeOptions(model="tiny", policies=POLICIES)


def test_options_survive_the_way_to_the_server() -> None:
    options = replace(TINY, step_log=Path("a/b.jsonl"), http=HttpSettings(drain_s=1.5))
    assert ServeOptions.from_json(options.as_json()) == options
    assert ServeOptions.from_json(TINY.as_json()) == TINY


@pytest.mark.parametrize("shape", ALL_MODELS.values(), ids=ALL_MODELS)
def test_a_model_that_is_no_preset_survives_the_way(shape: ModelConfig) -> None:
    changed = replace(TINY, shape=shape)
    assert ServeOptions.from_json(changed.as_json()) == changed
    assert changed.model_config() == shape


def test_a_model_that_is_not_there_is_named() -> None:
    with pytest.raises(EngineError, match="unknown model 'tinny'"):
        replace(TINY, model="tinny").model_config()
