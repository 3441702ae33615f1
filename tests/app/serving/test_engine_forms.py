"""The table of what the bundled engine runs: each row that says so runs, each other is refused."""

from dataclasses import replace

import pytest
from techniques_page import engine_cell

from servetwin.app.serving.techniques import (
    SMALL,
    CannotRun,
    engine_forms,
    plain_setup,
    with_techniques,
)
from servetwin.engine.core.messages import TokenEvent
from servetwin.engine.models.computation import Computation
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.config import PolicyConfig
from servetwin.sim.techniques.registry import TECHNIQUES, Toggles, find_technique
from servetwin.workloads.errors import ServetwinError
from tests.support.command import refused

pytest.importorskip("torch")

from servetwin.engine.core.build import build_core

POLICIES = PolicyConfig(kv_tokens=1024, max_model_len=256, max_seqs=4, token_budget=64)
OPTIONS = ServeOptions("small", POLICIES, computation=Computation(device="cpu"))
PROCESSES = {"tensor-parallel"}
"""Those whose engine has processes of its own."""
RUN = [
    pytest.param(form, marks=pytest.mark.slow) if name in PROCESSES else form
    for name, form in engine_forms().items()
]
NOT_RUN = [name for name in TECHNIQUES if name not in engine_forms()]
ALWAYS = {"flash-attention", "flash-decoding", "flash-decoding++"}


def toggles(form: str) -> Toggles:
    """The side of a technique that the engine has not by itself."""
    if find_technique(form).is_on(plain_setup(SMALL)):
        return Toggles.of((), (form,))
    return Toggles.of((form,), ())


def tokens_of(options: ServeOptions) -> list[int]:
    core, _ = build_core(options)
    prompt = list(range(40, 60))
    assert core.add("r", prompt, SamplingParams(4, ignore_eos=True), core.clock()) is None
    found = []
    try:
        while core.unfinished:
            for event in core.step(core.clock()) or []:
                assert isinstance(event, TokenEvent)
                found.append(event.token_id)
    finally:
        getattr(core.executor, "close", lambda: None)()
    return found


@pytest.mark.parametrize("form", RUN)
def test_a_row_that_says_it_runs_runs(form: str) -> None:
    options = with_techniques(OPTIONS, toggles(form))
    assert options != OPTIONS, "and changes the engine"
    assert len(tokens_of(options)) == 4
    assert engine_cell(form.partition(":")[0]) == f"`{form}`"


@pytest.mark.parametrize("name", NOT_RUN)
def test_every_other_row_is_refused_in_one_line(name: str) -> None:
    always = name in ALWAYS
    assert engine_cell(name) == ("always" if always else "-")
    option = "--without" if always else "--technique"
    line = refused("serve", "--model", "small", option, name)
    assert name in line.replace(" ", "-")
    if always:
        assert with_techniques(OPTIONS, Toggles.of((name,), ())) == OPTIONS
    with pytest.raises(ServetwinError):
        with_techniques(OPTIONS, Toggles.of((), (name,)) if always else Toggles.of((name,), ()))


def test_a_row_that_runs_on_small_says_so_of_larger_models_too() -> None:
    """The table is asked of one preset; no technique runs on others alone."""
    wide = replace(OPTIONS, model="base")
    for name in NOT_RUN:
        if name not in ALWAYS:
            with pytest.raises((CannotRun, ServetwinError)):
                with_techniques(wide, Toggles.of((name,), ()))
