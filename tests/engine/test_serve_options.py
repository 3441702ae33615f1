"""The options of a served engine."""

from dataclasses import replace
from pathlib import Path

from engine.serve_options import ServeOptions
from policies.config import PolicyConfig

POLICIES = PolicyConfig(kv_tokens=4096, max_model_len=2048, max_seqs=4)


TINY = ServeOptions(model="tiny", policies=POLICIES, port=0)


def test_options_survive_the_way_to_the_server() -> None:
    options = replace(TINY, step_log=Path("a/b.jsonl"), drain_s=1.5)
    assert ServeOptions.from_json(options.as_json()) == options
    assert ServeOptions.from_json(TINY.as_json()) == TINY
