"""How long a burst is waited for."""

from collections.abc import Sequence

import numpy as np

from servetwin.app.calibration.black_box.sender import Allowance, Burst, BurstRequest, BurstSender
from servetwin.workloads.request import Request


def test_no_burst_is_waited_for_longer_than_half_of_the_time_left() -> None:
    waits: list[float] = []

    def send(requests: Sequence[Request], timeout_s: float) -> Burst:
        waits.append(timeout_s)
        return Burst([])

    sender = BurstSender(send, Allowance(100.0, 10, used_s=20.0), np.random.default_rng(0))
    sender.send([BurstRequest(1, 1)])
    assert waits == [40.0]
