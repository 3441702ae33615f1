"""Why a prediction differs, as a table and in words."""

import textwrap
from itertools import chain

from servetwin.app.reports.metric_labels import METRICS
from servetwin.app.text.claims import WIDTH
from servetwin.app.verdict.why import Errors, Waterfall

WHY_TITLE = "Why it differs: each part is replaced by what was measured, and stays replaced"
_NAMED = 0.005
"""An effect of this much of the measured figure is named in words."""
_NAME, _CELL = 28, 10


def waterfall_lines(found: Waterfall) -> list[str]:
    """Return a line per cause with its effect on the error of the means, then what that says."""
    labels = [METRICS[name].label.partition(" ")[0] for name in found.predicted]
    lines = [
        "",
        WHY_TITLE,
        f"{'error of the mean, per cent':<{_NAME}}" + "".join(f"{one:>{_CELL}}" for one in labels),
        _line("predicted", found.predicted),
    ]
    for cause, effect in found.effects():
        cells = effect or dict.fromkeys(found.predicted)
        lines.append(f"{_line('  ' + cause.name, cells)}  {cause.note}".rstrip())
    lines.append(_line("left", found.left))
    said = (textwrap.wrap(sentence, WIDTH) for sentence in waterfall_sentences(found))
    return [*lines, "", *chain.from_iterable(said)]


def _line(name: str, errors: Errors | dict[str, None]) -> str:
    cells = ("-" if error is None else f"{100 * error:+.2f}" for error in errors.values())
    return f"{name:<{_NAME}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)


def waterfall_sentences(found: Waterfall) -> list[str]:
    """Return a sentence per latency, and one on what was not measured."""
    said = []
    for name, error in found.predicted.items():
        label = METRICS[name].label.partition(" ")[0]
        effects = [(effect[name], cause) for cause, effect in found.effects() if effect]
        named = sorted(
            (one for one in effects if abs(one[0]) >= _NAMED), key=lambda one: -abs(one[0])
        )
        parts = ", ".join(f"{cause.name} {100 * effect:+.1f}" for effect, cause in named)
        said.append(
            f"{label} is {100 * error:+.1f} % off: {parts or 'no part matters'}; "
            f"{100 * found.left[name]:+.1f} is left."
        )
    unknown = [f"{one.name} ({one.note})" for one in found.causes if one.errors is None]
    if unknown:
        said.append(f"Not measured, so part of what is left: {'; '.join(unknown)}.")
    return said
