"""The loss that a student is distilled with."""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def cross_entropy(target: FloatArray, predicted: FloatArray) -> float:
    """Return -sum_i target_i log predicted_i in nats; where the target is 0, nothing is added."""
    counted = target > 0
    return float(-(target[counted] * np.log(predicted[counted])).sum())


def distillation_loss(
    teacher: FloatArray,
    softened_student: FloatArray,
    student: FloatArray,
    label: FloatArray,
    soft_share: float,
) -> float:
    """Return a L_soft + (1 - a) L_hard (Hinton 2015).

    L_soft compares ``teacher`` with ``softened_student``, both at the distillation temperature,
    L_hard the one-hot ``label`` with ``student`` at temperature 1.
    """
    soft = cross_entropy(teacher, softened_student)
    return soft_share * soft + (1 - soft_share) * cross_entropy(label, student)
