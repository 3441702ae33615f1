"""Where step times come from: the four words for it, and a sentence on each.

Every page, report and command says it in these words; ``app.words`` adds their colours.
"""

from typing import Literal, get_args

Origin = Literal[
    "measured here",
    "measured by others",
    "kernel tables",
    "computed from data sheets",
    "not stated",
]
"""``not stated``, the fifth, is for a class of your own and for values that you give."""

ORIGINS: tuple[Origin, ...] = get_args(Origin)

MEANINGS: dict[Origin, str] = {
    "measured here": (
        "Servetwin timed the steps of an engine, on the machine that the profile names."
    ),
    "measured by others": (
        "Another tool timed a server, its layers or its operators, and Servetwin read its records."
    ),
    "kernel tables": "Times of single kernels on that GPU are added up; no server was measured.",
    "computed from data sheets": (
        "Formulas divide the work of a step by a device's peaks; nothing was measured."
    ),
    "not stated": (
        "A class of your own or values that you gave, whose origin Servetwin cannot know."
    ),
}


def origin_in_words(said: str, source: str) -> str:
    """Return the word for what a profile says; ``source`` describes what it was converted from.

    Profiles that were written before there were four words said *measured* or *computed*.
    """
    if said == "computed" and "kernel tables" in source:
        return "kernel tables"
    if said == "computed" and source.startswith("table profile"):
        return "measured by others"
    return {"measured": "measured here", "computed": "computed from data sheets"}.get(said, said)
