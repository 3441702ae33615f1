"""Fits from mean TTFT and TPOT: what a server of known overheads shows gives them back."""

from dataclasses import replace

import pytest

from servetwin.app.calibration.point import TERMS, ServerUnderLoad, fit_point, fit_terms, means_s
from servetwin.policies.config import PolicyConfig
from servetwin.sim.step_times.tables import KernelTable
from servetwin.sim.step_times.tables.server_overheads import ServerOverheads
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.made_kernels import MadeKernels

TABLE = KernelTable(MadeKernels(), "made")
POLICIES = PolicyConfig(
    batching="unified", kv="paged", kv_tokens=1 << 30, max_seqs=256, max_model_len=1 << 17,
    token_budget=2048,
)  # fmt: skip
COMMON = {name: width for name, width in TERMS.items() if name != "factor"}
TRUTH = ServerOverheads(step_s=1e-3, prefill_chunk_s=12e-3, prefill_row_s=5e-6, most_chunks=3)


def users(count: int, prompt: int, output: int) -> Trace:
    """Return the requests of so many users, four each, one after the other."""
    requests = (
        Request(
            f"{user}.{place}", 1e-3 * place, prompt + 7 * user, output + 3 * user,
            parent_id=f"{user}.{place - 1}" if place else None, delay_s=0.0 if place else None,
        )
        for place in range(4)
        for user in range(count)
    )  # fmt: skip
    return Trace(tuple(requests), "users")


def measured(trace: Trace, overheads: ServerOverheads) -> ServerUnderLoad:
    """Return a server whose measured point is what the truth shows under a load."""
    unknown = ServerUnderLoad(trace, 1.0, 1.0, TABLE, POLICIES)
    ttft_s, tpot_s = means_s(unknown.run(overheads)).tolist()
    return ServerUnderLoad(trace, ttft_s, tpot_s, TABLE, POLICIES)


def test_overheads_are_found_from_means_of_several_loads() -> None:
    loads = (users(2, 500, 60), users(8, 3000, 40), users(16, 200, 100), users(4, 6000, 50))
    servers = [measured(load, TRUTH) for load in loads]
    found = fit_terms(servers, ServerOverheads(most_chunks=3), COMMON)
    for name in ("step_s", "prefill_chunk_s", "prefill_row_s"):
        assert getattr(found, name) == pytest.approx(getattr(TRUTH, name), rel=0.1), name


@pytest.mark.parametrize("factor", [0.8, 1.5])
def test_one_point_carries_over_to_other_loads(factor: float) -> None:
    """A server whose kernels and overheads both differ from what is known of its backend."""
    truth = replace(TRUTH, factor=factor)
    point = measured(users(8, 1500, 60), truth)
    prior = ServerOverheads(step_s=0.5e-3, prefill_chunk_s=8e-3, prefill_row_s=4e-6, most_chunks=3)
    found = fit_point(point, prior)
    for load in (users(2, 800, 60), users(16, 1000, 80)):
        other = measured(load, truth)
        predicted_s = means_s(other.run(found))
        assert predicted_s == pytest.approx(other.measured_s(), rel=0.08)
