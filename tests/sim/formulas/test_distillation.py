"""The loss of distillation, as the lectures compute it."""

import numpy as np
import pytest

from tests.support.formulas.distillation import distillation_loss


def test_distillation_loss() -> None:
    teacher, softened, student = (
        np.array(p) for p in ([0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.5, 0.3, 0.2])
    )
    loss = distillation_loss(teacher, softened, student, np.array([1.0, 0, 0]), 0.7)
    assert loss == pytest.approx(0.7879859, abs=5e-8)
