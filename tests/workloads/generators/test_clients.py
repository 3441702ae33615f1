"""Clients that share a rate."""

from dataclasses import replace

import numpy as np
import pytest

from servetwin.workloads.generators.arrivals import ClientArrivals


def test_clients_share_the_rate_by_rank() -> None:
    process = ClientArrivals(10.0, clients=40, skew=1.3)
    each = process.processes(np.random.default_rng(0))
    rates = np.array([client.rate_per_s for client in each])
    assert rates.sum() == pytest.approx(10.0)
    assert rates[9] / rates[0] == pytest.approx(10**-1.3)
    many = replace(process, clients=20_000).processes(np.random.default_rng(0))
    cvs = np.array([client.cv for client in many])
    # four standard errors of the 50 % and 90 % points of ln cv, sigma 1.114
    assert np.log(np.percentile(cvs, 50) / 1.2) == pytest.approx(0, abs=4 * 1.114 * 1.25 / 141)
    assert np.log(np.percentile(cvs, 90) / 5.0) == pytest.approx(0, abs=4 * 1.114 * 1.71 / 141)


def test_more_clients_than_seeds_of_arrivals_still_arrive() -> None:
    assert len(ClientArrivals(1.0, clients=500).gaps_s(3, np.random.default_rng(0))) == 3
