"""What no policy may notice: the unit and the origin of time, names, and what is still to come."""

from dataclasses import replace
from math import inf, ldexp

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.request import Request
from tests.support.checked import CheckedScheduler
from tests.support.effort import examples
from tests.support.random_runs import every_scheduler, policies, workloads

COEFFICIENTS = {
    "constant": ldexp(1, -7),
    "decode_sequences": ldexp(1, -10),
    "rows_from_0": ldexp(1, -12),
    "decode_context_tokens": ldexp(1, -17),
    "prefill_pairs": ldexp(1, -20),
    "swapped_tokens": ldexp(1, -13),
}
INSTANTS = ["scheduled_s", "sent_s", "first_token_s", "last_token_s", "first_output_s"]


def changed(
    config: PolicyConfig, requests: list[Request], factor: float = 1, shift_s: float = 0
) -> tuple[PolicyConfig, list[Request]]:
    """Return settings and arrivals in whole 1/1024 s, times ``factor``, ``shift_s`` later."""

    def rounded(time_s: float) -> float:
        return factor * round(1024 * time_s) / 1024

    limit_s = None if config.shed_ttft_s is None else rounded(config.shed_ttft_s)
    moved = [replace(r, arrival_s=rounded(r.arrival_s) + shift_s) for r in requests]
    return replace(config, wait_limit_s=rounded(config.wait_limit_s), shed_ttft_s=limit_s), moved


def outcome(config: PolicyConfig, requests: list[Request], factor: float = 1) -> pd.DataFrame:
    model = LinearStepTime.of({name: factor * seconds for name, seconds in COEFFICIENTS.items()})
    return simulate(requests, CheckedScheduler(config), model).requests


@every_scheduler
@settings(max_examples=examples(15))
@given(data=st.data(), requests=workloads())
def test_a_policy_knows_no_unit_of_time_no_origin_no_names_and_no_future(
    batching: str, data: st.DataObject, requests: list[Request]
) -> None:
    config = data.draw(policies(batching))
    plain = changed(config, requests)
    frame = outcome(*plain)

    slow = outcome(*changed(config, requests, factor=2), factor=2)
    times = [column for column in frame.columns if column.endswith("_s")]
    assert slow[times].equals(2 * frame[times])
    texts = ["status", "error"]  # which names the limits of time
    assert slow.drop(columns=[*times, *texts]).equals(frame.drop(columns=[*times, *texts]))

    late = outcome(*changed(config, requests, shift_s=32))
    late[late.columns.intersection(INSTANTS)] -= 32  # some only where a request reasons
    assert late.equals(frame)

    named = [replace(r, request_id=f"{(7 * n) % 97}-{n}") for n, r in enumerate(plain[1])]
    renamed = outcome(plain[0], named)
    assert renamed.drop(columns="request_id").equals(frame.drop(columns="request_id"))

    kept = data.draw(st.integers(1, len(requests)))
    until_s = min((r.arrival_s for r in plain[1][kept:]), default=inf)
    known = frame[:kept][frame["last_token_s"][:kept] < until_s]
    alone = outcome(plain[0], plain[1][:kept])  # has no columns of reasoning where none does
    assert alone.loc[known.index].equals(known[alone.columns])
