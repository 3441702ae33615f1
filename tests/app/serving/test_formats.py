"""Techniques of number formats on the bundled engine."""

import pytest

from servetwin.app.serving.techniques import CannotRun, engine_forms, with_techniques
from servetwin.engine.models.computation import Computation
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.config import PolicyConfig
from servetwin.sim.techniques.registry import Toggles

SMALL = ServeOptions("small", PolicyConfig(kv_tokens=4096))


def computation(*on: str, without: tuple[str, ...] = ()) -> Computation:
    return with_techniques(SMALL, Toggles.of(on, without)).computation


@pytest.mark.parametrize(
    ("technique", "expected"),
    [
        ("weight-int8", Computation(weight_format="int8")),
        ("weight-int4", Computation(weight_format="int4", weight_group=128)),
        ("weight-int4:group=32", Computation(weight_format="int4", weight_group=32)),
        ("smooth-quant:scales=dynamic", Computation(weight_format="w8a8")),
        ("kv-quantisation:format=int8", Computation(kv_format="int8")),
        ("phase-formats:prefill=int8,decode=int8", Computation(weight_format="int8")),
    ],
)
def test_the_engine_computes_in_the_format(technique: str, expected: Computation) -> None:
    assert computation(technique) == expected


def test_formats_of_weights_and_of_keys_go_together() -> None:
    both = computation("weight-int4:group=64", "kv-quantisation:format=int8")
    assert both == Computation(weight_format="int4", weight_group=64, kv_format="int8")
    assert computation(without=("weight-int8",)) == Computation()


@pytest.mark.parametrize(
    ("technique", "reason"),
    [
        ("gptq", "gptq needs calibration data to choose scales; it rounds to the nearest"),
        ("awq:group=64", "awq needs calibration data to choose scales"),
        ("smooth-quant", "w8a8 needs calibration data to choose scales"),
        ("weight-int4:rounding=qat", "int4 by QAT needs training"),
        ("llm-int8", "it keeps no columns of outliers in fp16"),
        ("gguf:format=q4_k", "it has no weights in q4_k"),
        ("fp8:scales=dynamic", "it has no weights in fp8"),
        ("phase-formats", "it has one format of weights for prompts and decodes"),
        ("kv-quantisation", "it stores keys and values in int8 only"),
    ],
)
def test_what_the_engine_cannot_make_is_refused_with_the_reason(
    technique: str, reason: str
) -> None:
    with pytest.raises(CannotRun) as refused:
        computation(technique)
    assert f"the bundled engine cannot run it, {reason}" in str(refused.value)


def test_engine_forms_name_them() -> None:
    names = {"weight-int8", "weight-int4", "smooth-quant", "kv-quantisation"}
    assert names <= set(engine_forms())
    assert not {"gptq", "awq", "llm-int8", "fp8", "gguf"} & set(engine_forms())
