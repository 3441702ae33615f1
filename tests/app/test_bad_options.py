"""Every number of every command: what cannot be meant is one line, soon and in little memory."""

from collections.abc import Iterator, Sequence

import pytest

from tests.support.command import SERVER, over, refused
from tests.support.command_tree import SOME, USUAL, of_numbers
from tests.support.forked_commands import ForkedCommands, forked_commands
from tests.support.paths import SAMPLE

IMPOSSIBLE = ("nan", "inf", "-inf", "-1", "1e308", "1e309", "", "x", "9" * 400)
MOST_S, MOST_BYTES = 1.9, 300e6

REPLAY = ("replay", SAMPLE, *SERVER)
SAYS: list[tuple[Sequence[object], str]] = [
    ((*REPLAY, "--seed", -1), "--seed"),
    (("workload", "generate", "--out", "x.jsonl", "--seed", -1), "--seed"),
    (("workload", "generate", "--out", "x.jsonl", "--rate", "1e-320"), "a trace lasts at most"),
    ((*REPLAY, "--start", 500), "--start, --end: no request; the trace is 53.06"),
    ((*REPLAY, "--max-model-len", 5), "no step was run: 5 x too_long"),
    ((*REPLAY, "--prompt-scale", "1e18"), "--prompt-scale: 1e+18 is impossible"),
    ((*REPLAY, "--prompt-scale", "1e9"), "use a smaller scale"),
    (
        ("replay", SAMPLE, "--model", "llama-3-8b", "--hardware", "h100",
         "--efficiency", "overhead_s=inf"),
        "efficiency: overhead_s: inf is not possible",
    ),
    (("workload", "generate", "--out", "x.jsonl", "--requests", "1e10"), "--requests"),
    (("workload", "generate", "--out", "x.jsonl", "--requests", 2_000_000_000), "at most 10"),
    (("workload", "generate", "--out", "x.jsonl", "--closed-loop", 2 * 10**6), "at most 10"),
    (("workload", "generate", "--out", "x.jsonl", "--prefix-groups", 10**9), "at most 1,000,000"),
    (("workload", "generate", "--out", "x.jsonl", "--arrivals", "gamma:cv=1e308"), "cv: '1e308'"),
    (("workload", "generate", "--out", "x", "--prompt-tokens", "uniform:cv=1e308"), "cv: '1e308'"),
    (("sweep", SAMPLE, "--slo", "ttft=1s", "--attainment", "nan"), "--attainment"),
    (("sweep", SAMPLE, *SERVER, "--slo", "ttft=1s", "--rates", "nan"), "--rates: 'nan' is not"),
    (("capacity", SAMPLE, "--slo", "ttft=1s", "--attainment", "nan"), "--attainment"),
    (("capacity", SAMPLE, "--slo", "ttft=nan"), "--slo"),
    (("capacity", SAMPLE, "--slo", "ttft=1e309s"), "--slo"),
    ((*REPLAY, "--max-bad-rows", -1), "--max-bad-rows: -1 is impossible; give at least 0"),
    ((*REPLAY, "--prefill-decode", 0, 0), "--prefill-decode: wants servers of each kind"),
    ((*REPLAY, "--replicas", "100000000"), "replicas: 100000000 is not possible"),
    ((*REPLAY, "--replicas", 100_001), "replicas: 100001 is not possible"),
    ((*REPLAY, "--prefill-decode", 2_000_000, 1), "prefill_replicas: 2000000 is not"),
    ((*REPLAY, "--set", "max_seqs=" + "9" * 30), "max_seqs"),
    ((*REPLAY, "--replications", 10**9), "--replications"),
    (("loadtest", "http://127.0.0.1:9", "--trace", SAMPLE, "--loop", 10**9), "--loop"),
    (("replay", "x" * 5000), "cannot be read: File name too long"),
    ((*REPLAY, "--limit", 5, "--out", "x" * 5000), "cannot be made (File name too long)"),
    ((*REPLAY, "--profile", "x" * 5000 + ".json"), "File name too long"),
]  # fmt: skip


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedCommands]:
    folder = tmp_path_factory.mktemp("here")
    with forked_commands(folder) as commands:
        done = commands.run((*REPLAY, *SOME, "--replications", 0, "--out", "run"))
        assert done.code == 0, done.err
        yield commands


def test_the_tree_has_the_options() -> None:
    assert len(of_numbers()) > 150
    assert {one.command for one in of_numbers()} >= {"replay", "loadtest", "workload generate"}


@pytest.mark.parametrize("value", IMPOSSIBLE)
def test_no_command_takes_an_impossible_number(value: str) -> None:
    for each in of_numbers():
        usual = USUAL.get(each.command, ())
        line = refused(*each.words, *over(usual, (each.name, *[value] * each.nargs)))
        assert each.name in line, (each, line)
        assert "given 2 times" not in line, (each, line)


@pytest.mark.slow
def test_every_command_bears_a_zero(forked: ForkedCommands) -> None:
    for each in of_numbers():
        if each.command not in USUAL:
            continue  # A demo, or a dashboard, would begin.
        zero = (each.name, *[0] * each.nargs)
        done = forked.run((*each.words, *over(USUAL[each.command], zero)))
        assert done.code in (0, 1, 2, 3), (each, done)
        assert "Traceback" not in done.err, (each, done.err)
        assert done.peak_bytes < MOST_BYTES, (each, done)


@pytest.mark.parametrize(("arguments", "says"), SAYS, ids=lambda value: str(value)[-40:])
def test_what_cannot_be_meant_is_one_line(
    arguments: Sequence[object], says: str, forked: ForkedCommands
) -> None:
    done = forked.run(arguments)
    assert (done.code, done.out) == (2, ""), done
    (line,) = done.err.splitlines()
    assert says in line
    assert done.cpu_s < MOST_S
    assert done.peak_bytes < MOST_BYTES
