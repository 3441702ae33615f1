"""Where the time of a request went: its spans, their causes, its neighbours in the batch."""

from sim.explain.explain import PARTS, Explainer, Explanation

__all__ = ["PARTS", "Explainer", "Explanation"]
