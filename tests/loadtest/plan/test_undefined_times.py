"""What cannot be wanted of answers that come whole."""

import pytest

from servetwin.loadtest.body.body_options import BodyOptions
from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.options import LoadOptions, parse_cancellation
from servetwin.loadtest.plan.undefined_times import check_times, with_an_output, without_outputs
from servetwin.sim.records.metrics import SLO
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

WHOLE = Endpoint("http://a/v1", "m", options=BodyOptions(whole=True))
VECTORS = Endpoint("http://a/v1", "m", api="embeddings")
STREAM = Endpoint("http://a/v1", "m")
LEAVES = LoadOptions(cancellation=parse_cancellation("share=0.5,after=5tokens"))
LEAVES_LATER = LoadOptions(cancellation=parse_cancellation("share=0.5,after=1s"))


@pytest.mark.parametrize(
    ("endpoint", "load", "slo", "predicted", "said"),
    [
        (WHOLE, LoadOptions(), SLO(ttft_s=1.0), False, "--slo and --no-stream: TTFT and TPOT are"),
        (WHOLE, LoadOptions(), SLO(1.0, 1.0, 1.0), False, "--slo and --no-stream"),
        (VECTORS, LoadOptions(), SLO(tpot_s=1.0), False, "--slo and --api embeddings"),
        (WHOLE, LEAVES, None, False, "--cancel and --no-stream: no tokens to count"),
        (VECTORS, LoadOptions(), None, True, "--against and --api embeddings: predictions are of"),
    ],
)
def test_what_needs_tokens_one_by_one_is_refused(
    endpoint: Endpoint, load: LoadOptions, slo: SLO | None, predicted: bool, said: str
) -> None:
    with pytest.raises(LoadTestError) as refused:
        check_times(endpoint, load, slo, predicted=predicted)
    assert str(refused.value).startswith(said)
    check_times(STREAM, load, slo, predicted=predicted)


def test_what_is_defined_may_be_wanted() -> None:
    check_times(WHOLE, LEAVES_LATER, SLO(e2e_s=1.0), predicted=True)
    check_times(VECTORS, LEAVES_LATER, SLO(e2e_s=1.0), predicted=False)


def test_outputs_go_and_come_back_as_one_token() -> None:
    trace = Trace((Request("a", 0.0, 7, 5, answer="x"), Request("b", 1.0, 7, 9)), "t")
    without = without_outputs(trace)
    assert [(r.output_tokens, r.answer) for r in without] == [(0, None)] * 2
    assert [r.output_tokens for r in with_an_output(without)] == [1, 1]
    assert with_an_output(trace) == trace
