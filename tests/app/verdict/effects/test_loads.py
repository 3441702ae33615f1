"""The loads of an effect."""

import pytest

from servetwin.app.verdict.effects.sides import EffectLoads
from servetwin.sim.techniques.technique import Experiment
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace


def test_a_trace_is_sent_one_after_the_other_and_all_at_once() -> None:
    trace = Trace(tuple(Request(str(i), 3.0 * i, 8 + i, 4) for i in range(20)), "twenty")
    loads = EffectLoads.of(trace)
    assert [r.parent_id for r in loads.alone] == [None, *map(str, range(11))]
    assert [r.delay_s for r in loads.alone] == [None] + 11 * [0.0]
    assert {r.arrival_s for r in loads.saturated} == {0.0}
    assert [r.prompt_tokens for r in loads.saturated] == list(range(8, 28))


def test_experiments_are_made_smaller_and_fit_the_context() -> None:
    loads = EffectLoads.of_experiment(Experiment(512, 4096, shared_tokens=512), 1, 400)
    assert len(loads.saturated) == 32
    prompts = [r.prompt_tokens for r in loads.saturated]
    assert min(prompts) > 128
    assert max(prompts) <= 128 + 200
    assert max(r.output_tokens for r in loads.saturated) <= 200
    assert {r.prefix_block_ids for r in loads.saturated} == {tuple(range(8))}
    again = EffectLoads.of_experiment(Experiment(512, 4096, shared_tokens=512), 1, 400)
    assert loads == again


def test_an_experiment_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(LoadTestError, match="several answers are wanted \\(4 in its experiment\\)"):
        EffectLoads.of_experiment(Experiment(samples=4), 1, 400)
