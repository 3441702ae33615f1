"""The page of the Python API: the public names of ``servetwin``, in the order that readers need."""

from textwrap import fill

import servetwin

GROUPS = {
    "Read and make a load": ("load_trace", "sample_trace", "Workload", "Trace", "Request"),
    "Simulate": ("simulate", "predict", "Scenario", "load_profile", "Run", "load_run", "SLO"),
    "Your own policy": ("PolicyConfig", "build_scheduler", "Scheduler", "KVMemory"),
    "Search and compare": (
        "Deployment",
        "plan",
        "sweep",
        "find_capacity",
        "SLOTarget",
        "compare",
        "Explainer",
    ),
    "Live servers": ("probe", "run_load_test", "LLM"),
    "Errors": ("ServetwinError",),
}
_ABOUT = """# Python API

Everything is imported from `servetwin`, and loaded when it is first used.
[Your own policy](../guides/own-policy.md#from-python) has a first example."""


def api_page() -> str:
    """Return the page; mkdocstrings reads the entries from the sources."""
    sections = [
        "\n\n".join([f"## {heading}", _imports(names), *(f"::: {place(name)}" for name in names)])
        for heading, names in GROUPS.items()
    ]
    return "\n\n".join([_ABOUT, *sections]) + "\n"


def place(name: str) -> str:
    """Return the dotted name under which a public name is defined."""
    module, _, attribute = servetwin._PLACES[name].partition(":")
    return f"servetwin.{module}.{attribute}"


def _imports(names: tuple[str, ...]) -> str:
    line = fill(f"from servetwin import {', '.join(names)}", 76)
    if "\n" in line:
        listed = fill(f"{', '.join(names)},", 72, initial_indent="    ", subsequent_indent="    ")
        line = f"from servetwin import (\n{listed}\n)"
    return f"```python\n{line}\n```"
