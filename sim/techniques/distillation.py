"""Distillation: a smaller model that learned from the large one serves in its place."""

from sim.shapes.catalogue import find_model
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.errors import PolicyError


class Distillation(Technique):
    """``student``: a model of the catalogue, or the path of a shape."""

    name = "distillation"
    family = "numbers"
    kind = "algorithm"
    lossless = False
    formula = "the student's own shape"
    source = "Hinton 2015; for language models MiniLLM (Gu 2023)"

    student: str = "tinyllama-1.1b"

    def apply(self, setup: Setup) -> Setup:
        """The student serves, up to its own longest context; refused where it is not smaller."""
        teacher, student = setup.deployment.model, find_model(self.student)
        if student.params() >= teacher.params():
            raise PolicyError(
                f"{self.name}: student {student.name} ({student.params() / 1e9:.2f}e9 weights) is "
                f"not smaller than {teacher.name} ({teacher.params() / 1e9:.2f}e9)"
            )
        longest = min(setup.policies.max_model_len, student.max_model_len)
        return setup.with_deployment(model=student).with_policies(max_model_len=longest)
