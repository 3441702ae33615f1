"""The pages of docs/ name what there is, all of it and nothing else."""

import re
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import pytest
from typer.main import get_command

import servetwin.policies.config as settings
from servetwin.app.cli import app
from servetwin.app.scenario.options.distributions import LENGTHS, STRUCTURES
from servetwin.app.scenario.settings import parse_settings
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import PRESETS
from servetwin.policies.protocols import KVUsage, Refusal
from servetwin.policies.registry import EVICTION_ORDERS, ROUTERS, SCHEDULERS
from servetwin.policies.routers.replica_loads import RouterConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.experiments.scenario import ClusterConfig
from servetwin.sim.explain.bottleneck import QueueCause
from servetwin.sim.explain.explain import PARTS
from servetwin.sim.explain.spans import CLIENT_STAGES
from servetwin.sim.records.run import HANDOVER_COLUMNS, PAUSE_COLUMNS
from servetwin.sim.step_times.profile import shipped_profiles
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.generators.processes import ARRIVALS
from servetwin.workloads.plugins import Registry
from servetwin.workloads.readers.registry import READERS
from servetwin.workloads.request import Request
from tests.support.paths import DOCS
from tests.support.queue_cases.judge import CASES
from tests.support.theory.queues import mg1_wait_s, mm1_wait_relative_error

PAGES = {path.relative_to(DOCS).as_posix(): path.read_text() for path in DOCS.rglob("*.md")}
ALL = "\n".join(PAGES.values())
COMMANDS: Any = get_command(app)
DRAWN = re.findall(
    rf"^({'|'.join(SCHEDULERS)})  +[A-Z]", PAGES["policies/schedulers.md"], re.MULTILINE
)
"""Schedulers in the picture of the page."""
ABOUT = ("replay", "explain", "workload", "selftest")
"""Commands whose every option is documented by hand."""
OF_OTHERS = {
    "--help", "--yes", "--python", "--engine", "--enforce-eager", "--continuous-batching",
    "--cb-max-batch-tokens", "--save-result", "--save-detailed", "--output-details",
    "--head", "--to", "--address", "--workloads", "--record", "--quantization", "--drafts",
    "--drafts-ahead", "--disaggregation-mode", "--enable-lora", "--max-loras", "--max-lora-rank",
}  # fmt: skip
"""Options that pages name and no command lists: of benchmarks, of other servers, of Ray, of
jupytext."""


def options(command: Any) -> set[str]:
    """The long options of a command and of all its subcommands."""
    found = {
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
    }
    return found.union(*(options(sub) for sub in getattr(command, "commands", {}).values()))


def mentioned(text: str) -> set[str]:
    """The options that a text has."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))


def tables(page: str, heading: str) -> list[list[list[str]]]:
    """The cells of the tables of a page whose first column has this heading."""
    found = re.findall(r"^\|.*\n\|[-|]+\|\n(?:\|.*\n)+", PAGES[page], re.MULTILINE)
    rows = [[line.strip("|").split("|") for line in table.splitlines()] for table in found]
    return [
        [[cell.strip() for cell in row] for row in table[2:]]
        for table in rows
        if table[0][0].strip() == heading
    ]


def code(cell: str) -> list[str]:
    """What is set as code within lines."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", cell, flags=re.DOTALL | re.M))


def is_shown(name: str) -> bool:
    """Whether some page has a setting, as code or as an option."""
    return f"`{name}`" in ALL or re.search(rf"--{name.replace('_', '-')}\b", ALL) is not None


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)[^)]*\)", PAGES[page])
    written = [link for link in links if not re.match(r"(\.\./)*reference/", link)]
    broken = [link for link in written if not (DOCS / page).parent.joinpath(link).exists()]
    assert not broken


def test_the_index_lists_every_page() -> None:
    """Except itself, and the landing page of the site."""
    listed = re.findall(r"^\| \[.*\]\(([^)]+)\)", PAGES["README.md"], re.MULTILINE)
    assert sorted([*listed, "README.md", "index.md"]) == sorted(PAGES)


@pytest.mark.parametrize(
    ("page", "heading", "registered"),
    [
        ("policies/schedulers.md", "name", SCHEDULERS),
        ("policies/schedulers.md", "`queue_order`", get_args(settings.QueueOrder)),
        ("policies/schedulers.md", "`admission`", get_args(settings.Admission)),
        ("policies/schedulers.md", "kind", get_args(get_type_hints(Refusal)["kind"])),
        ("policies/kv-memory.md", "`reservation`", get_args(settings.Reservation)),
        ("policies/kv-memory.md", "column", [f.name for f in fields(KVUsage)][1:]),
        ("policies/kv-memory.md", "`prefix_index`", get_args(settings.PrefixIndex)),
        ("policies/kv-memory.md", "`eviction`", EVICTION_ORDERS),
        ("policies/kv-memory.md", "`victim`", get_args(settings.Victim)),
        ("policies/kv-memory.md", "`preemption`", get_args(settings.Preemption)),
        ("policies/presets.md", "`router`", ROUTERS),
        ("policies/presets.md", "preset", PRESETS),
        ("workloads.md", "field", [f.name for f in fields(Request)]),
        ("workloads.md", "reader", READERS),
        ("workloads.md", "`--arrivals`", ARRIVALS),
        ("workloads.md", "law", LENGTHS),
        ("workloads.md", "structure", STRUCTURES),
        ("explain.md", "part", PARTS),
        ("explain.md", "cause", get_args(QueueCause)),
        ("simulation-practice.md", "scenarios", CASES),
    ],
)
def test_tables_name_all_that_is_there_and_nothing_else(
    page: str, heading: str, registered: Iterable[str]
) -> None:
    found = tables(page, heading)
    assert found
    for table in found:
        named = sorted(name for row in table for name in code(row[0]))
        if isinstance(registered, Registry):  # the reference, which is generated, has all
            assert set(named) <= set(registered)
        else:
            assert named == sorted(registered)


@pytest.mark.parametrize("config", [PolicyConfig, ClusterConfig, RouterConfig])
def test_every_setting_is_documented(config: type[Any]) -> None:
    assert [f.name for f in fields(config) if not is_shown(f.name)] == []


@pytest.mark.parametrize(
    "name", [*shipped_profiles(), *PAUSE_COLUMNS[1:], *HANDOVER_COLUMNS[1:], *CLIENT_STAGES]
)
def test_profiles_columns_and_stages_are_documented(name: str) -> None:
    assert f"`{name}`" in ALL


def test_settings_written_as_code_are_possible() -> None:
    cluster = {f.name for f in fields(ClusterConfig)}
    written = [text for text in code(ALL) if re.fullmatch(r"[a-z_]+=[\w.-]+", text)]
    assert len(written) > 30
    for text in written:
        if text.partition("=")[0] not in cluster:
            assert parse_settings([text], "docs", PolicyConfig)


def test_options_of_what_the_pages_are_about_are_documented() -> None:
    for name in ABOUT:
        of_name = [each for each in COMMANDS.commands if each.split()[0] == name]
        listed = set().union(*(options(COMMANDS.commands[each]) for each in of_name))
        assert listed - mentioned(ALL) == set()


def test_no_option_is_made_up() -> None:
    ours = re.sub(r"^```sh\n.*?^```$", "", ALL, flags=re.DOTALL | re.MULTILINE)  # of other tools
    for preset in PRESETS.values():
        ours = ours.replace(preset.source, "")  # may name the options of the server itself
    assert mentioned(ours) - options(COMMANDS) <= OF_OTHERS


@pytest.mark.parametrize("batching", DRAWN)
def test_the_picture_of_the_schedulers_is_what_they_do(batching: str) -> None:
    """Steps 1 to 4, a letter or dot per row, after the prompts of A and B in step 0."""
    drawn = re.search(rf"^{batching} +(.*)$", PAGES["policies/schedulers.md"], re.MULTILINE)
    assert drawn
    rows = [len(cell.replace(" ", "")) for cell in re.split(r" {2,}", drawn[1])[:4]]
    slots = 3 if SCHEDULERS[batching].has_token_budget else 2
    budget = 5 if batching in ("chunked", "unified") else 256
    config = PolicyConfig(batching, max_seqs=slots, token_budget=budget, wait_limit_s=0.0)
    requests = [Request("A", 0.0, 1, 4), Request("B", 0.0, 1, 3), Request("C", 1.5, 6, 3)]
    second = LinearStepTime.of({"constant": 1.0})
    steps = simulate(requests, build_scheduler(config), second, macro=False).steps
    assert steps["rows"].tolist()[1:5] == rows


def numbers(cell: str) -> float:
    return float(cell.strip("% "))


def test_run_lengths_are_those_of_theory() -> None:
    sensitivity, errors = tables("simulation-practice.md", "ρ")
    for row in errors:
        expected = [100 * mm1_wait_relative_error(float(row[0]), 10**n) for n in (3, 4, 5, 6)]
        assert [f"{value:.1f} %" for value in expected] == row[1:]
    for load, wait, slower in sensitivity:
        at_s, above_s = (mg1_wait_s(float(load), service_s, 1.0) for service_s in (1.0, 1.01))
        assert at_s == pytest.approx(numbers(wait))
        assert f"+{100 * (above_s / at_s - 1):.1f} %" == slower
