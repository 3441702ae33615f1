"""The knee between compute and memory."""

from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.step_times.roofline.efficiency import p_norm


@given(st.floats(1e-9, 1e3), st.floats(1e-9, 1e3), st.floats(1, 16))
def test_the_knee_is_smooth_and_above_the_corner(a: float, b: float, p: float) -> None:
    assert max(a, b) <= p_norm(a, b, p) * (1 + 1e-12)
    assert p_norm(a, b, p) <= (a + b) * (1 + 1e-12)
    assert p_norm(a, b, float("inf")) == max(a, b)
