"""The base of techniques: parameters beyond all that is simulated are refused."""

import re

import pytest

from servetwin.sim.techniques.registry import TECHNIQUES, build_setup, find_technique
from servetwin.workloads.errors import PolicyError, ShapeError

PARAMETERS = [(name, key) for name in TECHNIQUES for key in TECHNIQUES.find(name).model_fields]


@pytest.mark.parametrize("value", ["9" * 20, "9" * 400, "1e308"])
def test_no_parameter_is_a_number_that_overflows(value: str) -> None:
    for name, key in PARAMETERS:
        if not _takes_text(name, key):
            with pytest.raises(PolicyError, match=f"^technique {re.escape(name)}: {key}"):
                find_technique(f"{name}:{key}={value}")


def _takes_text(name: str, key: str) -> bool:
    """Say whether the parameter is a name, of a model or a device."""
    return TECHNIQUES.find(name).model_fields[key].annotation in (str, str | None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sliding-window:window_tokens=10000001", "10000001 is not possible; it must be at most"),
        ("tensor-parallel:latency_us=2e9", "it must be at most 1,000,000,000"),
        ("speculative:drafts=1025", "less than or equal to 1024"),
        ("weight-int4:group=64,group=128", "group is given twice; give it once"),
    ],
)
def test_the_bound_is_said(text: str, reason: str) -> None:
    with pytest.raises(PolicyError) as error:
        find_technique(text)
    assert reason in str(error.value)


def test_the_bound_itself_is_possible() -> None:
    assert find_technique("sliding-window:window_tokens=10000000")
    assert find_technique("diffusion:passes=1024")


@pytest.mark.parametrize(
    "text",
    [
        "distillation:student=tinylama-1.1b",
        "cascade:small=tinylama-1.1b",
        "speculative:draft=tinylama-1.1b",
        "experts:mixture=tinylama-1.1b",
    ],
)
def test_a_model_that_does_not_exist_is_named_with_its_technique_and_parameter(text: str) -> None:
    name, parameter = text.partition("=")[0].split(":")
    with pytest.raises(ShapeError) as error:
        build_setup("llama-2-7b", "h100", [text])
    assert str(error.value).startswith(f"technique {name}: {parameter}: no model 'tinylama-1.1b'; ")
    assert "did you mean 'tinyllama-1.1b'?" in str(error.value)
