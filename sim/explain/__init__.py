"""Explanations: where the time of a request went, why it waited, and beside which requests."""

from servetwin.sim.explain.explain import PARTS, Explainer, Explanation

__all__ = ["PARTS", "Explainer", "Explanation"]
