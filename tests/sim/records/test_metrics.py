"""The metrics, on stamps whose figures can be worked out by hand."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from servetwin.sim.records.metrics import SLO, derive, describe, figure, summarize
from servetwin.workloads.request import CANCELLED_BY_TEST
from tests.support.request_frames import four_requests, four_stamps


def test_latencies_follow_their_definitions() -> None:
    requests = four_requests()
    assert requests["ttft_s"].tolist()[:3] == pytest.approx([0.5, 0.2, 0.1])
    assert requests["e2e_s"].tolist()[:3] == pytest.approx([2.5, 0.2, 8.0])
    assert requests["tpot_s"][0] == 0.5
    assert np.isnan(requests["tpot_s"][1]), "TPOT of one token is undefined, not 0"


def test_tokens_of_the_first_chunk_do_not_divide_the_time_after_it() -> None:
    stamps = four_requests().assign(first_chunk_tokens=[3, 1, 1, 0])
    assert derive(stamps)["tpot_s"][0] == 1.0


def test_summary_counts_throughput_hits_and_preemptions() -> None:
    summary = summarize(four_requests())
    assert summary["requests"] == {
        "total": 4,
        "finished": 3,
        "refused": 1,
        "cancelled": 0,
        "failed": 0,
    }
    assert summary["makespan_s"] == 10.0
    assert summary["output_throughput_tokens_per_s"] == 8.6
    assert summary["prefix_hit_rate_tokens"] == pytest.approx(16 / 60)
    assert summary["preemptions"] == 2
    assert summary["tpot_s"]["count"] == 2
    assert figure(summary, "ttft_s.p50") == pytest.approx(0.2)


def test_attainment_counts_every_scheduled_request_and_goodput_only_the_good() -> None:
    summary = summarize(four_requests(), SLO(ttft_s=0.3, tpot_s=1.0))
    assert summary["slo_attainment"] == 0.5
    assert summary["goodput_per_s"] == 0.2


def test_percentiles_are_linear_and_empty_ones_are_none() -> None:
    assert describe(pd.Series([1.0, 2.0, np.nan, 4.0]))["p90"] == pytest.approx(3.6)
    assert describe(pd.Series([np.nan]))["mean"] is None


def one(**stamps: float) -> pd.DataFrame:
    """A single finished request: 3 tokens, scheduled at 0, first token at 1, last at 3."""
    known = (
        four_stamps()
        .iloc[:1]
        .assign(scheduled_s=0.0, sent_s=0.0, first_token_s=1.0, last_token_s=3.0, output_tokens=3)
    )
    return derive(known.assign(**stamps))


def four_with_last(**values: Any) -> pd.DataFrame:
    """``four_requests``, the last of which (refused) is changed."""
    requests = four_requests()
    for name, value in values.items():
        requests.loc[3, name] = value
    return requests


def test_latencies_count_from_the_scheduled_time_however_late_the_client_was() -> None:
    late = one(sent_s=0.75)
    assert (late["ttft_s"][0], late["e2e_s"][0]) == (1.0, 3.0)
    assert summarize(late)["makespan_s"] == 3.0


@pytest.mark.parametrize(("output_tokens", "tpot_s"), [(1, None), (2, 2.0), (3, 1.0)])
def test_tpot_is_defined_from_two_tokens_on(output_tokens: int, tpot_s: float | None) -> None:
    requests = one(output_tokens=output_tokens)
    assert requests["tpot_s"].isna().tolist() == [tpot_s is None]
    assert summarize(requests)["tpot_s"]["p50"] == tpot_s


def test_an_answer_of_one_chunk_has_no_tpot() -> None:
    assert summarize(one(first_chunk_tokens=3))["tpot_s"]["count"] == 0


@pytest.mark.parametrize(("name", "seconds"), [("ttft_s", 1.0), ("tpot_s", 1.0), ("e2e_s", 3.0)])
def test_a_limit_is_met_up_to_and_with_its_value(name: str, seconds: float) -> None:
    assert SLO(**{name: seconds}).met(one()).tolist() == [True]
    assert SLO(**{name: np.nextafter(seconds, 0)}).met(one()).tolist() == [False]


def test_a_request_must_meet_every_limit() -> None:
    assert SLO(1.0, 1.0, 3.0).met(one()).all()
    assert not SLO(e2e_s=0.0).met(one()).any()
    for limits in ((0.5, 1.0, 3.0), (1.0, 0.5, 3.0), (1.0, 1.0, 2.5)):
        assert not SLO(*limits).met(one()).any()


def test_an_undefined_tpot_breaks_no_limit_but_a_request_that_did_not_finish_meets_none() -> None:
    assert SLO(tpot_s=0.001).met(four_requests()).tolist() == [False, True, False, False]
    assert SLO().met(four_requests()).tolist() == [True, True, True, False]


@pytest.mark.parametrize("status", ["refused", "cancelled", "failed"])
def test_makespan_begins_with_the_first_scheduled_request_finished_or_not(status: str) -> None:
    summary = summarize(four_with_last(status=status, scheduled_s=0.5), SLO())
    assert summary["requests"][status] == 1
    assert summary["makespan_s"] == 10.5
    assert summary["request_throughput_per_s"] == 3 / 10.5
    assert summary["goodput_per_s"] == 3 / 10.5


def test_makespan_ends_with_the_last_token_of_any_finished_request() -> None:
    requests = four_requests().iloc[[2, 0, 1, 3]]
    assert summarize(requests)["makespan_s"] == 10.0
    requests.loc[requests["request_id"] == "d", "last_token_s"] = 99.0
    assert summarize(requests)["makespan_s"] == 10.0


def test_a_run_in_which_nothing_finished_has_no_rates() -> None:
    summary = summarize(four_requests().iloc[3:], SLO(ttft_s=1.0))
    assert summary["makespan_s"] == 0.0
    assert summary["slo_attainment"] == 0.0
    undefined = ("goodput_per_s", "output_throughput_tokens_per_s", "request_throughput_per_s",
                 "prefix_hit_rate_tokens")  # fmt: skip
    assert [summary[name] for name in undefined] == [None] * 4
    assert summary["ttft_s"] == dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max")) | {
        "count": 0
    }


def test_tokens_and_latencies_of_unfinished_requests_do_not_count_their_preemptions_do() -> None:
    requests = four_with_last(
        status="failed", output_tokens=7, cached_tokens=8, preemptions=3,
        ttft_s=1000.0, tpot_s=1000.0, e2e_s=1000.0,
    )  # fmt: skip
    summary = summarize(requests)
    assert (summary["prompt_tokens"], summary["output_tokens"]) == (60, 86)
    assert summary["prefix_hit_rate_tokens"] == pytest.approx(16 / 60)
    assert summary["request_throughput_per_s"] == pytest.approx(0.3)
    assert summary["preemptions"] == 5
    assert (summary["ttft_s"]["max"], summary["e2e_s"]["max"]) == (0.5, 8.0)


def test_rates_of_single_requests_follow_from_their_latencies() -> None:
    summary = summarize(one())
    assert summary["decode_tps"]["p50"] == 1.0
    assert summary["request_tps"]["p50"] == 1.0
    assert summarize(one(last_token_s=1.0))["decode_tps"]["count"] == 0


def test_requests_that_the_test_cancelled_are_not_in_the_attainment_failures_are() -> None:
    assert summarize(four_with_last(status="failed"), SLO())["slo_attainment"] == 0.75
    assert summarize(four_with_last(status="cancelled"), SLO())["slo_attainment"] == 0.75
    requests = four_with_last(status="cancelled", error=CANCELLED_BY_TEST)
    summary = summarize(requests, SLO())
    assert (summary["slo_attainment"], summary["goodput_per_s"]) == (1.0, 0.3)
    assert summary["requests"]["total"] == 4
    assert summarize(requests.drop(columns="error"), SLO())["slo_attainment"] == 0.75


def test_the_warm_up_is_in_no_figure() -> None:
    marked = four_requests().assign(warm_up=[True, False, False, False])
    without: dict[str, Any] = summarize(four_requests().iloc[1:], SLO(ttft_s=0.15))
    assert summarize(marked, SLO(ttft_s=0.15)) == without
    assert without["requests"]["total"] == 3
    assert without["makespan_s"] == 9.0


def test_a_description_has_every_percentile_of_the_finite_values() -> None:
    values = pd.Series([*range(100), 201, np.inf, np.nan], dtype=float)
    assert describe(values) == {
        "count": 101, "mean": 51.0, "p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0,
        "max": 201.0,
    }  # fmt: skip


def test_a_summary_without_slo_has_no_attainment() -> None:
    assert not {"goodput_per_s", "slo_attainment"} & summarize(four_requests()).keys()


def test_a_figure_is_found_by_its_path() -> None:
    summary = summarize(four_requests().iloc[3:])
    assert figure(summary, "ttft_s.p90") is None
    assert figure(summary, "ttft_s.count") == 0.0
    with pytest.raises(KeyError):
        figure(summary, "ttft_s.p42")


def test_the_metrics_of_three_requests_worked_out_by_hand() -> None:
    stamps = pd.DataFrame(
        {
            "status": "finished",
            "scheduled_s": [0.0, 1.0, 2.0],
            "first_token_s": [0.5, 2.0, 2.5],
            "last_token_s": [4.5, 3.0, 5.5],
            "prompt_tokens": 1,
            "output_tokens": [5, 3, 4],
            "cached_tokens": 0,
            "preemptions": 0,
        }
    )
    summary = summarize(derive(stamps))
    printed = {
        "ttft_s.mean": "0.666667",
        "output_throughput_tokens_per_s": "2.181818",
        "request_tps.mean": "1.251323",
        "decode_tps.mean": "1.333333",
    }
    assert {name: f"{figure(summary, name):.6f}" for name in printed} == printed
    single = summarize(derive(stamps.assign(output_tokens=1, last_token_s=stamps.first_token_s)))
    assert single["decode_tps"]["count"] == 0, "one token has no decode TPS"
