"""What the intervals of a scenario cover, or why it has none: said once on a page."""

from servetwin.app.dashboard.simulations import REPLICATIONS, SimulatedScenario
from servetwin.app.words import origin_words


def interval_sentence(outcome: SimulatedScenario) -> str:
    """Return what the intervals cover, and what they do not."""
    generated, certain = outcome.file.workload.is_generated, outcome.scenario.is_certain()
    known = origin_words(outcome.scenario.origins)
    unknown = f"the error of its step times ({known}) is unknown"
    if not outcome.is_drawn:
        return f"No intervals: a recorded trace does not vary, and {unknown}."
    drawn = ["a new draw of the workload"] if generated else []
    if not certain:
        drawn.append("a new draw of the uncertain step times")
    elif not generated:
        drawn.append("new choices of the random router")
    missing = f" They do not cover the server: {unknown}." if certain else ""
    one = f" The large numbers are from one draw, seed {outcome.file.seed}." if generated else ""
    return (
        f"Intervals cover nine of ten of {REPLICATIONS} replications, each with "
        f"{' and '.join(drawn)}.{one}{missing}"
    )
