"""Links of task graphs: which are broken, and which requests are one task."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.errors import TraceError
from servetwin.workloads.graphs.links import BrokenLink, broken_links, refuse_cycles, tasks

Graph = dict[str, tuple[str, ...]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any links, circles and unknown parents included."""
    names = [str(n) for n in range(draw(st.integers(1, 9)))]
    parents = st.sets(st.sampled_from([*names, "not here"]), max_size=3)
    return {name: tuple(sorted(draw(parents))) for name in names}


def above(graph: Graph, name: str) -> set[str]:
    """All that a request waits for, by way of others too."""
    seen: set[str] = set()
    rest = list(graph[name])
    while rest:
        if (parent := rest.pop()) not in seen:
            seen.add(parent)
            rest += graph.get(parent, ())
    return seen


@given(graphs())
def test_what_waits_for_itself_is_cyclic_and_what_is_not_there_unknown(graph: Graph) -> None:
    broken = broken_links(graph)
    for name in graph:
        if "not here" in graph[name]:
            assert broken[name] == BrokenLink("unknown", "not here")
        elif name in above(graph, name):
            assert broken[name].reason == "cyclic"
    circles = {name for name in graph if name in above(graph, name)}
    if circles:
        with pytest.raises(TraceError, match="waits for itself"):
            refuse_cycles({name: tuple(p for p in ps if p in graph) for name, ps in graph.items()})
    else:
        assert {link.reason for link in broken.values()} <= {"unknown"}


@given(graphs())
def test_a_task_is_all_that_links_connect(graph: Graph) -> None:
    leaders = tasks(graph)
    groups = {frozenset(n for n in graph if leaders[n] == leader) for leader in leaders.values()}
    for name, parents in graph.items():
        assert all(leaders[name] == leaders[parent] for parent in parents if parent in graph)
    for group in groups:  # nothing but links connects: each part of a task has a link to the rest
        for name in group if len(group) > 1 else ():
            rest = group - {name}
            assert rest & {*graph[name]} or any(name in graph[other] for other in rest)


def test_the_circle_is_shown() -> None:
    with pytest.raises(TraceError, match=r"'b' waits for itself \(b -> c -> b\): cut one"):
        refuse_cycles({"a": ("b",), "b": ("c",), "c": ("b",)})
