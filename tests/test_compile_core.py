"""The compiled core and its sources give equal results, to the last bit."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import compile_core
from servetwin.core_cache import kept
from servetwin.policies.config import PolicyConfig
from servetwin.policies.registry import ROUTERS
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from tests.support.both_builds import (
    Build,
    Outcome,
    on_a_cluster,
    on_a_shipped_profile,
    on_one_server,
    require_compiled,
    without_latencies,
)
from tests.support.paths import ROOT, SAMPLE, SHEET_PROFILE
from tests.support.random_runs import Clock, every_scheduler, policies, workloads

SMALL = PolicyConfig(kv_tokens=96, block_tokens=4, max_model_len=70, max_seqs=3, token_budget=20)


@pytest.fixture(scope="module")
def builds() -> Iterator[tuple[Build, Build]]:
    """Yield both builds, the pure one first."""
    require_compiled()
    with Build(pure=True) as pure, Build(pure=False) as compiled:
        assert (pure.is_compiled, compiled.is_compiled) == (False, True)
        yield pure, compiled


def assert_equal(
    builds: tuple[Build, Build], simulate: Callable[[Build, bool], Outcome]
) -> Outcome:
    """Assert that both builds find the same, in runs of steps and step by step."""
    pure, compiled = builds
    macro, single = simulate(pure, True), simulate(pure, False)
    assert simulate(compiled, True) == macro
    assert simulate(compiled, False) == single
    assert macro.requests == single.requests
    return macro


@every_scheduler
@given(data=st.data(), requests=workloads())
def test_both_builds_simulate_the_same_policies_to_the_last_bit(
    builds: tuple[Build, Build], batching: str, data: st.DataObject, requests: list[Request]
) -> None:
    config = data.draw(policies(batching))
    if batching in ("continuous", "unified") and data.draw(st.booleans()):
        plain = {"decode_needs_free_block": False, "recompute": "all"}
        plain |= {"long_prefill_tokens": 0, "long_prefill_adaptive": False}
        config = config.changed(token_budget=64, **plain).with_drafts(2)
    clock: Clock = data.draw(st.sampled_from(get_args(Clock)))
    assert_equal(builds, lambda b, macro: b.run(on_one_server, config, requests, macro, clock))


@pytest.mark.parametrize("router", ROUTERS)
@given(requests=workloads(), staleness_s=st.sampled_from([0.0, 0.1]), prefix_cache=st.booleans())
def test_both_builds_simulate_the_same_clusters_to_the_last_bit(
    builds: tuple[Build, Build],
    router: str,
    requests: list[Request],
    staleness_s: float,
    prefix_cache: bool,
) -> None:
    given: tuple[Any, ...] = (replace(SMALL, prefix_cache=prefix_cache), router, requests)
    assert_equal(builds, lambda b, macro: b.run(on_a_cluster, *given, macro, staleness_s))


@pytest.mark.parametrize("name", ["base-cpu", SHEET_PROFILE])
def test_both_builds_simulate_a_long_trace_to_the_last_bit(
    builds: tuple[Build, Build], name: str
) -> None:
    requests = list(read_trace(SAMPLE))
    config = PolicyConfig(kv_tokens=4096, max_model_len=4096, prefix_cache=True)
    found = assert_equal(
        builds, lambda b, macro: b.run(on_a_shipped_profile, name, config, requests, macro)
    )
    assert found.requests.count("finished") == len(requests)


def test_latencies_that_are_all_0_are_none(builds: tuple[Build, Build]) -> None:
    for build in builds:
        none, some = build.run(without_latencies)
        assert none == "None"
        assert some.startswith("ApiLatency(request_s=1.0")


def test_what_a_compiled_core_imports_is_compiled(builds: tuple[Build, Build]) -> None:
    folder = kept(ROOT) / "servetwin"
    names = {path.relative_to(folder).as_posix().partition(".")[0] for path in folder.rglob("*.*")}
    assert {module.removesuffix(".py") for module in compile_core.modules()} <= names


def test_every_file_that_stays_interpreted_is_there_and_would_be_compiled() -> None:
    globbed = {path for glob in compile_core.COMPILED for path in ROOT.glob(glob)}
    assert {ROOT / name for name in compile_core.INTERPRETED} <= globbed
    assert not set(compile_core.modules()) & set(compile_core.INTERPRETED)


def test_no_compiled_name_is_a_keyword_of_c() -> None:
    """mypyc takes the underscores off."""
    keywords = {"auto", "register", "signed", "static", "switch", "typedef", "volatile"}
    keywords |= {"const", "default", "do", "enum", "extern", "goto", "inline", "union", "void"}
    keywords |= {"case", "char", "double", "long", "restrict", "short", "sizeof", "struct"}
    for module in compile_core.modules():
        for node in ast.walk(ast.parse((ROOT / module).read_text())):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                assert node.attr.strip("_") not in keywords, (module, node.lineno, node.attr)


def test_frozen_dataclasses_stay_pythons_own_so_that_they_can_be_pickled() -> None:
    for module in compile_core.modules():
        for node in ast.walk(ast.parse((ROOT / module).read_text())):
            decorators = [ast.unparse(d) for d in getattr(node, "decorator_list", [])]
            if any("frozen=True" in decorator for decorator in decorators):
                assert "mypyc_attr(native_class=False)" in decorators, (module, decorators)
