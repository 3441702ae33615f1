"""Stories of fleets: what is lost, sent again, left, refused or cut off, to the step."""

from dataclasses import replace

import pytest

from servetwin.policies.config import PolicyConfig
from servetwin.policies.queues.quotas import parse_quotas
from servetwin.sim.core.autoscaling import parse_rule
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.faults import parse_faults
from servetwin.sim.core.fleet.gateway import FleetPlan
from servetwin.sim.core.pools import Pool
from tests.sim.core.test_cluster import ONE_SECOND, SMALL, Checked
from tests.support.checked import request


def test_a_crash_loses_what_is_held_and_what_has_no_token_is_sent_again() -> None:
    """Steps of a second, two sequences each; replica 0 crashes at 2.5 s, which is noticed at 4.5 s.

    It held a, which has two tokens and fails, and c, which has none. e comes to it while nobody
    knows. c and e are sent to replica 1 at 4.5 s. Replica 0 is back at 9 s.
    """
    requests = [
        request("a", 0.0, 4, 4),
        request("b", 0.1, 4, 9),
        request("c", 2.0, 4, 2),
        request("d", 3.0, 4, 1),
        request("e", 4.0, 4, 1),
        request("f", 8.0, 4, 1),
        request("g", 9.5, 4, 1),
        request("h", 9.6, 4, 1),
    ]
    config = PolicyConfig(kv_tokens=96, block_tokens=4, max_model_len=70, max_seqs=2)
    fleet = FleetPlan(2, parse_faults("crash:replica=0,at_s=2.5,for_s=6.5"), None, 2.0)
    of = simulate_cluster(requests, [Pool(config, ONE_SECOND, 2)], closed_loop=False, fleet=fleet)
    columns = ["request_id", "status", "replica", "first_token_s", "last_token_s", "error"]
    nan = float("nan")
    expected = [
        ("a", "failed", 0, 1.0, nan, "failed: replica 0 crashed"),
        ("b", "finished", 1, 1.1, 9.1, ""),
        ("c", "finished", 1, 6.1, 7.1, ""),
        ("d", "finished", 1, 4.1, 4.1, ""),
        ("e", "finished", 1, 8.1, 8.1, ""),
        ("f", "finished", 1, 9.1, 9.1, ""),
        ("g", "finished", 1, 10.5, 10.5, ""),
        ("h", "finished", 0, 10.6, 10.6, ""),
    ]
    found = [tuple(row) for row in of.requests[columns].round(9).itertuples(index=False)]
    assert repr(found) == repr(expected)
    figures = of.extra["fleet"]
    assert (figures["crashes"], figures["lost"], figures["retried"]) == (1, 3, 2)
    assert figures["sizes"] == [[0.0, 2], [4.5, 1], [9.0, 2]]


def test_a_client_that_leaves_frees_its_place_at_the_end_of_the_step() -> None:
    """Steps of a second, one sequence at a time, clients that leave after four seconds.

    b leaves while its second step runs, c at the very end of one, d in its first, e while it waits.
    """
    sent = (
        ("a", 0.0, 3),
        ("b", 0.5, 4),
        ("c", 3.0, 3),
        ("d", 3.1, 1),
        ("e", 4.0, 1),
        ("f", 5.5, 1),
    )
    requests = [request(name, at_s, 4, output) for name, at_s, output in sent]
    config = PolicyConfig(kv_tokens=96, block_tokens=4, max_model_len=70, max_seqs=1)
    nan, why = float("nan"), "timeout: no complete answer within 4 s"
    expected = [
        ("a", "finished", 1.0, 3.0, ""),
        ("b", "failed", 4.0, nan, why),
        ("c", "failed", 6.0, nan, why),
        ("d", "failed", nan, nan, why),
        ("e", "failed", nan, nan, why),
        ("f", "finished", 9.0, 9.0, ""),
    ]
    for macro in (True, False):
        checked, fleet = Checked(), FleetPlan(1, timeout_s=4.0)
        pools = [Pool(config, ONE_SECOND)]
        of = simulate_cluster(
            requests, pools, closed_loop=False, macro=macro, build=checked, fleet=fleet
        )
        columns = ["request_id", "status", "first_token_s", "last_token_s", "error"]
        found = [tuple(row) for row in of.requests[columns].itertuples(index=False)]
        assert repr(found) == repr(expected)
        assert of.extra["fleet"]["timed_out"] == 4
        checked.check_empty()


def test_the_copy_with_the_first_token_wins_and_the_other_is_aborted() -> None:
    """Steps of a second, one sequence at a time on two servers; hedges after 1.5 s.

    c is behind a on server 0; its copy goes to server 1, which both d and it wait for. d's copy
    is behind a. e's copy comes to server 1 in the moment of its only token.
    """
    at_s, outputs = (0.0, 0.1, 0.2, 0.3, 4.5), (5, 1, 2, 1, 1)
    requests = [request(*of) for of in zip("abcde", at_s, (4,) * 5, outputs, strict=True)]
    config = PolicyConfig(kv_tokens=96, block_tokens=4, max_model_len=70, max_seqs=1)
    expected = [
        ("a", "finished", 0, 1.0, 5.0),
        ("b", "finished", 1, 1.1, 1.1),
        ("c", "finished", 1, 3.1, 4.1),
        ("d", "finished", 1, 2.1, 2.1),
        ("e", "finished", 0, 6.0, 6.0),
    ]
    for macro in (True, False):
        checked, fleet = Checked(), FleetPlan(2, hedge_s=1.5)
        pools = [Pool(config, ONE_SECOND, 2)]
        of = simulate_cluster(
            requests, pools, closed_loop=False, macro=macro, build=checked, fleet=fleet
        )
        columns = ["request_id", "status", "replica", "first_token_s", "last_token_s"]
        found = [tuple(row) for row in of.requests[columns].round(9).itertuples(index=False)]
        assert found == expected
        assert of.extra["fleet"]["hedged"] == 3
        assert of.steps["end_s"].max() == 7.0, "e's copy runs to the end of its step"
        checked.check_empty()


@pytest.mark.parametrize("ahead", [False, True])
def test_a_drained_replica_is_paid_until_its_last_answer_ends(ahead: bool) -> None:
    """Also where its scheduler, which decides ahead, forgets the answer a moment later."""
    config = PolicyConfig(
        "unified", queue_samples=True, decide_ahead=ahead, kv_tokens=10_000, max_model_len=1000
    )
    rule = parse_rule("schedule:steps=2/1@4.5,max=2,interval_s=1,stabilisation_s=0")
    requests = [request(str(k), 0.5 + k / 4, output=9 + 30 * (k > 1)) for k in range(4)]
    requests.append(request("late", 80.0))
    got = simulate_cluster(
        requests, [Pool(config, ONE_SECOND, 2)], fleet=FleetPlan(2, (), rule), closed_loop=False
    )
    rows, hours = got.requests, sorted(got.extra["fleet"]["hours_by_replica"])
    last_s = rows[rows["request_id"] != "late"].groupby("replica")["last_token_s"].max()
    assert hours[0] * 3600 == pytest.approx(last_s.min(), abs=2e-6)
    assert hours[1] * 3600 == pytest.approx(rows["last_token_s"].max(), abs=2e-6)


def test_what_is_over_quota_is_refused_before_a_router_sees_it() -> None:
    requests = [
        replace(request(str(n), float(n), 4, 4), tenant=tenant)
        for n, tenant in enumerate(["a", "b", "a", None, "a", "b"])
    ]
    fleet = FleetPlan(2, quotas=parse_quotas("a=2/10,b=8/8"))
    of = simulate_cluster(requests, [Pool(SMALL, ONE_SECOND, 2)], closed_loop=False, fleet=fleet)
    assert list(of.requests["error"]) == [
        "",
        "",
        "over_quota: 8 tokens are more than the 6 left of the burst of 10",
        "",
        "",
        "",
    ]
    assert list(of.requests["status"]).count("refused") == 1
    assert list(of.requests["replica"][[0, 1, 3, 4, 5]]) == [0, 1, 0, 1, 0]


def test_a_replica_that_is_cut_off_goes_on_in_vain_until_it_hears_who_left() -> None:
    """Steps of a second, two sequences each; replica 0 is cut off from 1.5 to 6.2 s.

    It goes on with a, of which the client has a token, and with c, of which it has none, as the
    gateway sees at 3.5 s. e never gets there. Both are sent again; replica 0 ends its step at 7 s.
    """
    at_s, outputs = (0.0, 0.1, 1.0, 1.2, 2.0, 7.5, 7.6), (4, 9, 9, 1, 1, 1, 1)
    requests = [request(*of) for of in zip("abcdefg", at_s, (4,) * 7, outputs, strict=True)]
    config = PolicyConfig(kv_tokens=96, block_tokens=4, max_model_len=70, max_seqs=2)
    nan, why = float("nan"), "failed: replica 0 was cut off"
    expected = [
        ("a", "failed", 0, 1.0, nan, why),
        ("b", "finished", 1, 1.1, 9.1, ""),
        ("c", "finished", 1, 5.1, 13.1, ""),
        ("d", "finished", 1, 3.1, 3.1, ""),
        ("e", "finished", 1, 10.1, 10.1, ""),
        ("f", "finished", 1, 11.1, 11.1, ""),
        ("g", "finished", 0, 8.6, 8.6, ""),
    ]
    for macro in (True, False):
        faults = parse_faults("partition:replica=0,at_s=1.5,for_s=4.7")
        checked, fleet = Checked(), FleetPlan(2, faults, None, 2.0)
        pools = [Pool(config, ONE_SECOND, 2)]
        of = simulate_cluster(
            requests, pools, closed_loop=False, macro=macro, build=checked, fleet=fleet
        )
        columns = ["request_id", "status", "replica", "first_token_s", "last_token_s", "error"]
        found = [tuple(row) for row in of.requests[columns].round(9).itertuples(index=False)]
        assert repr(found) == repr(expected)
        figures = of.extra["fleet"]
        assert [figures[name] for name in ("partitions", "lost", "retried")] == [1, 3, 2]
        assert figures["sizes"][1] == [3.5, 1]
        assert of.steps[of.steps["replica"] == 0]["end_s"].iloc[-2] == 7.0
        checked.check_empty()
