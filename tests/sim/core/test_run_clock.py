"""Clocks of runs: a closed form piece by piece ends where single steps do."""

from hypothesis import given
from hypothesis import strategies as st

from policies.batch import Batch, BatchShape
from policies.lockstep import Lockstep
from sim.core.run_clock import PiecewiseClock, SampledClock, run_clock
from sim.step_times.piecewise import Piece, PiecewiseStepTime

BATCH = Batch((), Lockstep(1))


class Pieces(PiecewiseStepTime):
    """Given pieces, the last of them for ever."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces

    def piece(self, shape: BatchShape, step: int = 0) -> Piece:
        for first, slope, steps in self.pieces[:-1]:
            if step < steps:
                return Piece(first + slope * step, slope, steps - step)
            step -= steps
        first, slope, _ = self.pieces[-1]
        return Piece(first + slope * step, slope, 1 << 40)


PIECES = st.lists(
    st.builds(Piece, st.integers(1, 10**9), st.integers(0, 10**6), st.integers(1, 20)),
    min_size=1,
    max_size=4,
)


@given(PIECES, st.integers(1, 60), st.floats(0, 1))
def test_pieces_end_where_single_steps_do(pieces: list[Piece], steps: int, share: float) -> None:
    model = Pieces(pieces)
    clock, sampled = run_clock(model, None), SampledClock(model, None)
    assert isinstance(clock, PiecewiseClock)
    whole = clock.begin(BATCH, None, steps, 0)
    assert whole == sampled.begin(BATCH, None, steps, 0)
    at = max(1, int(share * whole))
    assert clock.boundary(at) == sampled.boundary(at)
