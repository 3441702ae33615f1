"""Help texts, the options of other commands, the completion of a shell, and how soon help comes."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app import cli
from servetwin.app.cli import COMMANDS
from servetwin.app.last_net import OUR_FAULT, is_out_of_memory, last_words
from servetwin.app.scenario.setting_docs import setting_docs
from servetwin.app.words import METRICS
from servetwin.policies.registry import SCHEDULERS
from tests.support.command import SERVER, commands, refused, servetwin
from tests.support.paths import SAMPLE

HEAVY = ("numpy", "pandas", "pydantic", "rich", "scipy", "simpy", "torch")


def shown(*arguments: str) -> str:
    return " ".join(servetwin(*arguments).out.split())


def test_help_describes_settings_with_their_choices() -> None:
    text = shown("replay", "--help-all")
    assert all(name in text for name in SCHEDULERS)
    assert setting_docs()["policies.max_seqs"].sentence in text
    assert "{" not in text


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_what_most_people_need_and_help_all_the_rest(name: str) -> None:
    brief, whole = (servetwin(*name.split(), flag).out for flag in ("--help", "--help-all"))
    options = [option.opts[0] for option in commands().commands[name].options]
    assert sum(line.startswith("  --") for line in brief.splitlines()) <= 9
    assert [option for option in options if f"  {option}" not in whole] == []
    assert set(commands().commands[name].essential) <= set(options)
    assert max(map(len, [*brief.splitlines(), *whole.splitlines()])) <= 100
    assert "<" not in whole.replace("-vllm", "").replace("METRIC<", "").replace("attainment<", "")


def test_groups_of_options_have_headings_and_types_are_words() -> None:
    text = servetwin("replay", "--help-all").out
    assert text.index("\nPolicy options:") < text.index("--batching TEXT")
    assert "--seed INTEGER" in text
    assert "--rate NUMBER" in text


def test_the_list_of_commands_has_all_of_them() -> None:
    text = servetwin("--help").out
    assert all(f"  {name} " in text and summary in text for name, (_, summary) in COMMANDS.items())


def test_a_first_word_alone_lists_its_commands() -> None:
    assert "workload stats" in shown("workload", "--help")
    assert refused("workload").endswith(
        "workload named, workload generate, workload convert, workload anonymise"
    )
    assert "did you mean 'replay'?" in refused("replai")


def test_an_option_of_another_command_says_which() -> None:
    assert refused("replay", "--rates", "1") == (
        "servetwin: --rates: servetwin replay has no such option; servetwin sweep has it"
    )
    assert refused("techniques", "--formats") == (
        "servetwin: --formats: no option; write servetwin techniques formats"
    )
    assert "Possible options: --profile" in refused("replay", "--profil", "x")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (
            "capacity x --slo ttft=1s --slo tpot=50ms",
            "--slo: given 2 times; give it once, its parts separated by commas",
        ),
        ("replay x --prefix-cache --no-prefix-cache", "--prefix-cache: given 2 times; give it onc"),
        ("replay x --set max_seqs=8 --set max_seqs=9", "--set: max_seqs is given twice; give it o"),
    ],
)
def test_parts_and_opposites_whose_last_alone_would_count_are_given_once(
    command: str, says: str, tmp_path: Path
) -> None:
    trace = tmp_path / "x"
    trace.write_text('{"timestamp": 1, "input_length": 9, "output_length": 2, "hash_ids": []}\n')
    words = [str(trace) if word == "x" else word for word in command.split()]
    assert says in refused(*words, *(("--profile", "base-cpu") if "--set" in words else ()))


def test_the_option_that_follows_is_no_value() -> None:
    assert refused("capacity", "x", "--lanes", "--slo", "task=1s") == (
        "servetwin: --lanes: no value before --slo; write --lanes N[:agentx][,KEY=N,...]"
    )
    assert "--seed: no value before --json" in refused("replay", "x", "--seed", "--json")
    assert "no value" not in refused("capacity", "x", "--replicas", "--slo", "ttft=1s")


def test_flags_plain_values_and_repeatable_options_are_given_as_often_as_one_likes() -> None:
    for words in (
        "replay x --json --json --seed 1 --seed 2",
        "plan x --model m --slo e2e=1s --gpu a --gpu b",
    ):
        assert refused(*words.split()) == "servetwin: x: no such file"


def python(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    return done.stdout


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys, atexit; sys.argv = ['servetwin', '--help']; "
        "atexit.register(lambda: print('imported', *sys.modules)); "
        "from servetwin.app.cli import main; main()"
    )
    text, _, imported = python(program).rpartition("imported")
    assert "replay" in text
    assert set(imported.split()) & set(HEAVY) == set()
    assert not [name for name in imported.split() if name.startswith("servetwin.app.commands")]


def test_replay_of_a_profile_loads_what_it_needs() -> None:
    arguments = ["servetwin", "replay", str(SAMPLE), *SERVER, "--router", "random"]
    program = (
        f"import sys, atexit, gc, os; sys.argv = {arguments}; "
        "os.environ.pop('OPENBLAS_NUM_THREADS', None); "
        "searches = lambda: sum(each['collections'] for each in gc.get_stats()); "
        "atexit.register(lambda: print('imported', *sys.modules)); "
        "from servetwin.__main__ import main; before = searches(); "
        "atexit.register(lambda: print(os.environ['OPENBLAS_NUM_THREADS'], searches() - before)); "
        "main()"
    )
    text, _, imported = python(program).rpartition("imported")
    threads, searches = text.split()[-2:]
    names = set(imported.split())
    assert "finished" in text
    assert not {"pandas", "scipy", "typer._adapters"} & names
    parts = ("sim.catalogue.model", "sim.techniques", "sim.step_times.roofline", "sim.core.fleet")
    assert not [n for n in names if n.removeprefix("servetwin.").startswith(parts)]
    assert (threads, searches) == ("1", "0")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("servetwin rep", ["replay", "report"]),
        ("servetwin workload ", ["stats", "generate"]),
        ("servetwin loadtest im", ["import"]),
        ("servetwin replay --prof", ["--profile"]),
    ],
)
def test_a_shell_completes(words: str, found: list[str]) -> None:
    done = python(
        "from servetwin.app.cli import app; app(prog_name='servetwin')",
        _SERVETWIN_COMPLETE="complete_bash",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split(" ")) - 1),
    )
    assert set(found) <= set(done.split())


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), "a/b: Permission denied"),
    ],
)
def test_what_the_system_refuses_is_nobodys_fault(error: Exception, line: str) -> None:
    assert last_words(error, (), "servetwin 1") == (line, 1)


@pytest.mark.parametrize(
    "error", [MemoryError(), ImportError("x.so: failed to map segment from shared object")]
)
def test_short_memory_is_said_without_an_import(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def app(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setitem(sys.modules, "servetwin.loadtest.redaction", None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    words = "servetwin: out of memory; take a part of the input, or more memory\n"
    assert (ended.value.code, capsys.readouterr().err) == (1, words)


def test_anything_else_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-secret-of-mine")
    arguments = ("loadtest", "http://host", "--header", "X-Key: sk-a-secret-of-mine")
    line, code = last_words(raised(KeyError("x")), arguments, "servetwin 1")
    assert code == OUR_FAULT
    named = re.search(r"KeyError.; (.+) has what to report", line)
    assert named
    report = Path(named[1]).read_text()
    assert "servetwin 1, Python 3" in report
    assert "in raised" in report
    assert "loadtest http://host" in report
    assert "sk-a" not in report


def test_a_full_disk_takes_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    line, code = last_words(raised(KeyError("x")), (), "servetwin 1")
    assert (line, code) == ("an error of servetwin itself (KeyError)", OUR_FAULT)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (ImportError("lib.so: failed to map segment from shared object"), True),
        (RuntimeError("can't start new thread"), True),
        (SystemError("error return without exception set"), True),
        (OSError("Failed to launch worker thread: Resource temporarily unavailable"), True),
        (RuntimeError("a step started a new pass"), False),
    ],
)
def test_memory_is_out_for_objects_threads_and_libraries(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_words_are_defined_for_every_metric() -> None:
    assert all(metric.definition and metric.label for metric in METRICS.values())
