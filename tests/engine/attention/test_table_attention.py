"""A runner whose decodes attend over block tables says what transformers says."""

from itertools import product
from typing import Any

import pytest

from servetwin.engine.attention.choose import attention_backend
from servetwin.engine.attention.table_attention import DecodeKernel, TableAttention
from servetwin.engine.kernels import choose_operators as triton_here
from servetwin.policies.protocols import KVLayout
from servetwin.workloads.errors import EngineError
from tests.engine.core.test_runner import (
    MAX_LOGIT_ERROR,
    Driver,
    RecordingRunner,
    make_sequences,
    run_alone,
    run_together,
)
from tests.support.engine_oracle import (
    NEW_TOKENS,
    PROMPT_TOKENS,
    Oracle,
    ask_transformers,
    draw_weights,
)
from tests.support.table_reference import attend_by_table
from tests.support.triton_device import DEVICES


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return ask_transformers(draw_weights())


class TableRunner(RecordingRunner):
    """A runner with an attention over block tables, by any kernel."""

    def __init__(self, kernel: DecodeKernel, **options: Any) -> None:
        super().__init__(**options)
        self._attention = TableAttention(self.store, kernel)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["paged", "contiguous"])
def test_greedy_tokens_are_those_of_transformers(oracle: Oracle, layout: KVLayout) -> None:
    runner = TableRunner(attend_by_table, layout=layout)
    modes = product([PROMPT_TOKENS + NEW_TOKENS, 7], [0, 3], [run_alone, run_together])
    for chunk_tokens, padding, run in modes:
        tokens, logits = run(Driver(runner, chunk_tokens, padding))
        mode = (chunk_tokens, padding, run.__name__)
        assert tokens == oracle.tokens, mode
        assert (logits - oracle.logits).abs().max() <= MAX_LOGIT_ERROR, mode


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", ["paged", "contiguous"])
def test_the_kernel_gives_the_same_tokens(oracle: Oracle, layout: KVLayout, device: str) -> None:
    pytest.importorskip("triton")
    runner = RecordingRunner(attention="triton", layout=layout, device=device)
    assert runner.describe()["attention"] == "triton"
    seqs = make_sequences()[:2]
    for seq in seqs:
        seq.max_tokens = 3
    tokens, logits = Driver(runner).run(seqs, [0, 1])
    assert tokens == [expected[:3] for expected in oracle.tokens[:2]]
    assert (logits - oracle.logits[:2, :3]).abs().max() <= MAX_LOGIT_ERROR


def test_triton_that_cannot_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    store = RecordingRunner().store
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(EngineError, match=r"^attention 'triton' needs a CUDA device, or TRITON_"):
        attention_backend("triton", store, 2)
    monkeypatch.setattr(triton_here, "has_triton", lambda: False)
    with pytest.raises(EngineError, match=r"^attention 'triton' needs Triton: pip install triton$"):
        attention_backend("triton", store, 2)
