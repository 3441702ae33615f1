"""A run in parts has the bytes of the run in one process."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.app.scenario.options.simulations import StreamOptions
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.parallel_map import map_on_processes
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.long_runs.partitioned_run import DividedRun, Part, PartDone, simulate_part
from servetwin.sim.step_times.profile import ApiLatencyFit
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.request import Request
from tests.support.effort import examples
from tests.support.streamed_runs import (
    NOISY,
    WITHOUT_NOISE,
    clusters,
    configs,
    divided,
    small_pieces,
    streamed,
    traces,
    written,
)


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(traces(), configs(), st.integers(1, 9), st.booleans())
def test_parts_cut_by_time_change_no_byte(
    tmp_path_factory: pytest.TempPathFactory,
    requests: list[Request],
    config: PolicyConfig,
    parts: int,
    macro: bool,
) -> None:
    order = "fcfs" if config.queue_order == "fair" else config.queue_order
    config = replace(config, prefix_cache=False, host_cache_tokens=0, queue_order=order)
    same_bytes(
        tmp_path_factory.mktemp("run"), requests, Scenario(config, WITHOUT_NOISE), parts, macro
    )


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(traces(), configs(), clusters, st.integers(1, 6), st.booleans())
def test_parts_of_replicas_change_no_byte(
    tmp_path_factory: pytest.TempPathFactory,
    requests: list[Request],
    config: PolicyConfig,
    cluster: ClusterConfig,
    parts: int,
    macro: bool,
) -> None:
    same_bytes(
        tmp_path_factory.mktemp("run"), requests, Scenario(config, NOISY, cluster), parts, macro
    )


def same_bytes(
    folder: Path,
    requests: list[Request],
    scenario: Scenario,
    parts: int,
    macro: bool = True,
    first_part: int = 4,
) -> None:
    with small_pieces(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("servetwin.workloads.streams.streamed_trace.FIRST_PART", first_part)
        trace = written(requests, folder)
        one = streamed(trace, scenario, folder / "one", macro)
        assert divided(trace, scenario, folder / "parts", parts, macro=macro) == one


def spread(gap_s: float, count: int = 400) -> list[Request]:
    return [Request(f"r{n}", n * gap_s, 100, 20) for n in range(count)]


def simulated_parts(tmp_path: Path, gap_s: float) -> list[Part]:
    begun: list[Part] = []

    def simulated(run: DividedRun, parts: Sequence[Part]) -> Iterator[tuple[int, PartDone]]:
        begun.extend(parts)
        return ((place, simulate_part(run, part)) for place, part in enumerate(parts))

    trace = written(spread(gap_s), tmp_path)
    scenario = Scenario(WITHOUT_NOISE.policy_config(), WITHOUT_NOISE)
    one = streamed(trace, scenario, tmp_path / "one")
    assert divided(trace, scenario, tmp_path / "parts", 4, simulated) == one
    return begun


def test_an_idle_server_is_cut_everywhere(tmp_path: Path) -> None:
    assert len(simulated_parts(tmp_path, gap_s=5.0)) == 4


def test_a_server_that_is_never_empty_is_simulated_as_one_again(
    tmp_path: Path,
) -> None:
    *first, last = simulated_parts(tmp_path, gap_s=0.01)
    assert len(first) == 4
    assert last == Part(0, 400)


def test_a_server_that_waits_for_more_is_not_empty(tmp_path: Path) -> None:
    """No step runs while a static batch fills, and a request that is given up has none at all."""
    requests = [Request(f"r{n}", 0.15 * n, 5, 1) for n in range(9)]
    config = replace(
        WITHOUT_NOISE.policy_config(),
        batching="static",
        max_seqs=2,
        wait_limit_s=0.5,
        shed_ttft_s=0.2,
    )
    scenario = Scenario(config, WITHOUT_NOISE)
    same_bytes(tmp_path, requests, scenario, parts=9, first_part=1)


def test_a_request_that_is_still_on_its_way_delays_the_next(tmp_path: Path) -> None:
    """One API process reads requests in their order, also requests that are refused then."""
    long = WITHOUT_NOISE.policy_config().max_model_len + 1
    requests = [
        Request(f"r{pair}-{n}", 0.04 * pair + 0.01 * n, (9, long)[n], 1)
        for pair in range(4)
        for n in range(2)
    ]
    api = ApiLatencyFit(request_per_token_s=1e-5)
    scenario = Scenario(
        WITHOUT_NOISE.policy_config(), WITHOUT_NOISE.model_copy(update={"api": api})
    )
    same_bytes(tmp_path, requests, scenario, parts=4, first_part=1)


def test_a_run_that_cannot_be_divided_leaves_no_spool(tmp_path: Path) -> None:
    trace = written(spread(1.0, 9), tmp_path)
    with pytest.raises(PolicyError, match="has noise"):
        divided(trace, Scenario(NOISY.policy_config(), NOISY), tmp_path / "parts", 2)
    assert not (tmp_path / "parts" / "spool").exists()


@pytest.mark.slow
def test_parts_on_two_processes_change_no_byte(tmp_path: Path) -> None:
    trace = written(spread(1.0), tmp_path)
    scenario = Scenario(WITHOUT_NOISE.policy_config(), WITHOUT_NOISE)
    one = streamed(trace, scenario, tmp_path / "one")
    on_two = StreamOptions(processes=2).simulated
    assert divided(trace, scenario, tmp_path / "parts", 4, on_two) == one


@pytest.mark.slow
def test_a_part_whose_process_is_killed_is_simulated_once_more(tmp_path: Path) -> None:
    trace = written(spread(1.0), tmp_path)
    scenario = Scenario(WITHOUT_NOISE.policy_config(), WITHOUT_NOISE)
    one = streamed(trace, scenario, tmp_path / "one")

    def simulated(run: DividedRun, parts: Sequence[Part]) -> Iterator[tuple[int, PartDone]]:
        return map_on_processes(killed_once, run, parts, 2)

    assert divided(trace, scenario, tmp_path / "parts", 4, simulated) == one
    assert (tmp_path / "killed").exists()


def killed_once(run: DividedRun, part: Part) -> PartDone:
    """Simulate a part; the first to do so dies with its rows half written."""
    done = simulate_part(run, part)
    with suppress(FileExistsError):
        (run.trace.file.path.parent / "killed").touch(exist_ok=False)
        os.kill(os.getpid(), signal.SIGKILL)
    return done
