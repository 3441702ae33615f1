"""Deployments and steps that tests of the roofline share."""

import numpy as np
from hypothesis import strategies as st

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

LLAMA, A100 = find_model("llama-2-7b"), find_hardware("a100-80gb")
REAL = Deployment(LLAMA, A100)


def trace(requests: int = 40, apart_s: float = 0.05) -> Trace:
    rng = np.random.default_rng(7)
    lengths = rng.integers(1, 400, (requests, 2)).tolist()
    return Trace(
        tuple(Request(f"r{i}", i * apart_s, n, m) for i, (n, m) in enumerate(lengths)), "made"
    )


shapes = st.builds(
    lambda decodes, context, chunks: BatchShape(decodes, decodes * context, decodes, tuple(chunks)),
    st.integers(1, 300),
    st.integers(1, 4000),
    st.lists(st.tuples(st.integers(0, 4000), st.integers(2, 2000)), max_size=3),
)
