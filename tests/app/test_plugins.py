"""Every kind of plug-in, loaded by path: it runs, and every fault of it ends in one line."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from servetwin.policies.registry import EVICTION_ORDERS, MEMORIES, ROUTERS, SCHEDULERS
from servetwin.sim.step_times.server_model import STEP_TIMES
from servetwin.sim.techniques.registry import TECHNIQUES
from servetwin.workloads.generators.processes import ARRIVALS
from servetwin.workloads.plugins import Registry
from servetwin.workloads.readers.registry import READERS
from tests.support.command import SERVER, refused, servetwin
from tests.support.paths import SAMPLE

SHORT = ("replay", SAMPLE, "--limit", 20, "--replications", 0)
REPLAY = (*SHORT, *SERVER)
SHARING = ("--prefix-cache", "--kv-tokens", 2048, "--set")


class Kind(NamedTuple):
    """How a kind of plug-in is written and named on the command line."""

    registry: Registry[Any]
    arguments: Callable[[str], tuple[object, ...]]
    good: str
    """A whole file with a class ``Mine`` that works; more methods may follow."""
    bare: str
    """The same without ``method``."""
    method: str
    """A method that every run calls, with its parameters."""
    wrong: str = "'nonsense'"
    """What it must not return."""


KINDS = {
    "batching": Kind(
        SCHEDULERS,
        lambda name: (*REPLAY, "--batching", name),
        "from servetwin.policies.schedulers.continuous import ContinuousBatching\n"
        "class Mine(ContinuousBatching):\n    pass\n",
        "class Mine:\n    def __init__(self, memory, config):\n        self.memory = memory\n",
        "schedule(self, now_s)",
    ),
    "kv": Kind(
        MEMORIES,
        lambda name: (*REPLAY, "--kv", name),
        "from servetwin.policies.kv.paged import PagedKV\nclass Mine(PagedKV):\n    pass\n",
        "class Mine:\n    def __init__(self, config):\n        pass\n",
        "reserve(self, seq, tokens)",
        "None",
    ),
    "eviction": Kind(
        EVICTION_ORDERS,
        lambda name: (*REPLAY, *SHARING, f"eviction={name}"),
        "class Mine:\n    def rank(self, uses, born, now):\n        return -now\n",
        "class Mine:\n    pass\n",
        "rank(self, uses, born, now)",
    ),
    "router": Kind(
        ROUTERS,
        lambda name: (*REPLAY, "--replicas", 2, "--router", name),
        "class Mine:\n    def __init__(self, loads, config, rng):\n        pass\n"
        "    def choose(self, request, now_s):\n        return 1\n",
        "class Mine:\n    def __init__(self, loads, config, rng):\n        pass\n",
        "choose(self, request, now_s)",
        "7.5",
    ),
    "profile": Kind(
        STEP_TIMES,
        lambda name: (*SHORT, "--profile", name),
        "import numpy as np\nclass Mine:\n    def seconds(self, shape, steps=1):\n"
        "        return np.full(steps, 0.01)\n",
        "class Mine:\n    pass\n",
        "seconds(self, shape, steps=1)",
        "[0.01]",
    ),
    "--arrivals": Kind(
        ARRIVALS,
        lambda name: ("workload", "generate", "--requests", 20, "--arrivals", name),
        "import numpy as np\nclass Mine:\n    def __init__(self, rate_per_s, pause=1.0):\n"
        "        self.rate_per_s = rate_per_s\n"
        "    def gaps_s(self, count, rng):\n        return np.full(count, 1 / self.rate_per_s)\n",
        "class Mine:\n    def __init__(self, rate_per_s):\n        self.rate_per_s = rate_per_s\n",
        "gaps_s(self, count, rng)",
    ),
    "reader": Kind(
        READERS,
        lambda name: (*REPLAY, "--reader", name),
        "from servetwin import Request, Trace\n"
        "class Mine:\n    def recognises(self, row):\n        return True\n"
        "    def read(self, rows):\n        return Trace((Request('a', 0.0, 3, 2),), 'mine')\n",
        "class Mine:\n    def recognises(self, row):\n        return True\n",
        "read(self, rows)",
    ),
    "technique": Kind(
        TECHNIQUES,
        lambda name: (*SHORT, "--model", "llama-3-8b", "--hardware", "h100", "--technique", name),
        "from servetwin.sim.techniques.technique import Technique\nclass Mine(Technique):\n"
        "    name, family, kind, lossless = 'mine', 'serving', 'system', True\n"
        "    formula, source = 'none', 'none'\n"
        "    def apply(self, setup):\n        return setup.with_policies(max_seqs=4)\n",
        "class Mine:\n    def apply(self, setup):\n        return setup\n",
        "apply(self, setup)",
    ),
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)

OF_NO_TEXT = "SyntaxError" if sys.version_info >= (3, 11, 4) else "ValueError"
"""What Python raises for bytes of zero in a source."""
BROKEN_FILES = {
    "raises-at-import": ("1 / 0\n", ":1: Mine: the file raised ZeroDivisionError: division by"),
    "imports-nothing": ("import nothing_here\n", ":1: Mine: the file raised ModuleNotFoundError"),
    "syntax-error": ("class Mine(:\n", ":1: Mine: the file raised SyntaxError: invalid syntax"),
    "exits-at-import": ("import sys\nsys.exit(0)\n", ":2: Mine: the file raised SystemExit: 0"),
    "no-text": (
        "\0", f": Mine: the file raised {OF_NO_TEXT}: source code string cannot contain null bytes"
    ),
    "no-class": ("Mine = 3\n", ": Mine: the file has no class 'Mine'"),
}  # fmt: skip
"""Files that do not load, and what their refusal says of the line and the reason."""
BODIES = {
    "raises": "raise RuntimeError('two\\nlines')",
    "exits": "raise SystemExit(0)",
    "returns-nonsense": "return {wrong}",
}
TAKES_TOO_MUCH = "    def __init__(self, a, b, c, d, e, f):\n        pass\n"
INIT_RAISES = "    def __init__(self, *args, **kwargs):\n        raise ValueError('no')\n"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return tmp_path / "mine.py"


def refusal_of(kind: Kind, path: Path, source: str) -> str:
    """The one line with which the command refuses the plug-in; nothing is written."""
    path.write_text(source)
    out = path.parent / ("out.jsonl" if kind.registry is ARRIVALS else "out")
    said = refused(*kind.arguments(f"{path}:Mine"), "--out", out)
    assert not out.exists()
    assert f"{path}" in said
    assert "Mine" in said
    return said


@every_kind
def test_a_plug_in_of_a_file_runs(kind: Kind, mine: Path) -> None:
    mine.write_text(kind.good)
    out = mine.parent / ("out.jsonl" if kind.registry is ARRIVALS else "out")
    done = servetwin(*kind.arguments(f"{mine}:Mine"), "--out", out)
    assert (done.code, done.out != "") == (0, True), done.err
    assert out.exists()


@every_kind
@pytest.mark.parametrize(("source", "reason"), BROKEN_FILES.values(), ids=BROKEN_FILES)
def test_a_file_that_does_not_load_is_refused_with_its_line_and_the_reason(
    kind: Kind, source: str, reason: str, mine: Path
) -> None:
    assert reason in refusal_of(kind, mine, source)


@every_kind
def test_no_file_is_named(kind: Kind, tmp_path: Path) -> None:
    said = refused(*kind.arguments(f"{tmp_path}/none.py:Mine"), "--out", tmp_path / "out.jsonl")
    assert f"{tmp_path}/none.py: Mine: the file cannot be read (No such file" in said


@every_kind
def test_an_unknown_name_is_refused(kind: Kind, tmp_path: Path) -> None:
    said = refused(*kind.arguments("unheard-of"), "--out", tmp_path / "out.jsonl")
    assert "unheard-of" in said


@every_kind
def test_a_wrong_constructor_is_named(kind: Kind, mine: Path) -> None:
    source = kind.good.replace("    def __init__(self", "    def old(self") + TAKES_TOO_MUCH
    assert "Mine is built as Mine(" in refusal_of(kind, mine, source)


@every_kind
def test_a_constructor_that_raises_is_named(kind: Kind, mine: Path) -> None:
    said = refusal_of(kind, mine, kind.good + INIT_RAISES)
    assert "Mine() raised ValueError: no" in said
    assert f"{mine}:{len((kind.good + INIT_RAISES).splitlines())}: " in said


@every_kind
def test_a_missing_method_is_named(kind: Kind, mine: Path) -> None:
    said = refusal_of(kind, mine, kind.bare)
    assert " has no " in said or " does not derive from servetwin.sim.techniques" in said


@every_kind
def test_a_method_with_other_parameters_is_named(kind: Kind, mine: Path) -> None:
    name = kind.method.partition("(")[0]
    said = refusal_of(kind, mine, f"{kind.good}    def {name}(self):\n        pass\n")
    assert f"Mine.{name}() must take (" in said


@every_kind
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_method_that_fails_is_named(kind: Kind, body: str, mine: Path) -> None:
    body = body.format(wrong=kind.wrong)
    said = refusal_of(kind, mine, f"{kind.good}    def {kind.method}:\n        {body}\n")
    assert f"Mine.{kind.method.partition('(')[0]}() " in said
    assert f"{mine}:" in said


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        ("router", "2", "chose replica 2"),
        ("profile", "np.full(steps + 1, 0.01)", "an array of shape"),
        ("profile", "np.full(steps, -0.01)", "a duration that is not from 0 to"),
        ("profile", "np.full(steps, np.nan)", "a duration that is not from 0 to"),
        ("profile", "np.array([None] * steps)", "'None' for a duration in seconds"),
        ("profile", "np.array(['x'] * steps)", "'x' for a duration in seconds"),
        ("profile", "np.full(steps, 1e300)", "a duration that is not from 0 to"),
        ("--arrivals", "np.full(count - 1, 1.0)", "an array of shape (18,), not 19 gaps"),
        ("--arrivals", "np.full(count, -1.0)", "a gap that is no number from 0 up"),
        ("--arrivals", "np.zeros(count)", "gaps that are all 0"),
        ("reader", "Trace(({},), 'mine')", "a trace with a dict, not a Request"),
        ("eviction", "float('nan')", "nan"),
    ],
)
def test_an_impossible_value_is_named(kind: str, value: str, problem: str, mine: Path) -> None:
    known = KINDS[kind]
    source = f"{known.good}    def {known.method}:\n        return {value}\n"
    assert problem in refusal_of(known, mine, source)


@pytest.mark.parametrize(("kind", "setting"), [("--arrivals", "pause"), ("technique", "x")])
def test_settings_come_after_the_class(kind: str, setting: str, mine: Path) -> None:
    mine.write_text(KINDS[kind].good.replace("    def apply", "    x: int = 1\n    def apply"))
    out = ("--out", mine.parent / ("out.jsonl" if kind == "--arrivals" else "out"))
    arguments = KINDS[kind].arguments
    assert "did you mean" in refused(*arguments(f"{mine}:Mine:{setting}s=2"), *out)
    assert servetwin(*arguments(f"{mine}:Mine:{setting}=2"), *out).code == 0


def test_an_error_in_what_a_plug_in_hands_out_is_named_too(mine: Path) -> None:
    mine.write_text(
        "from servetwin.policies.schedulers.continuous import ContinuousBatching\n"
        "from servetwin.policies.queues.ranked_queue import RankedQueue\n"
        "class Queue(RankedQueue):\n"
        "    def rank(self, seq):\n        return seq.nothing\n"
        "class Mine(ContinuousBatching):\n"
        "    def build_queue(self, config):\n        return Queue()\n"
    )
    said = refused(*REPLAY, "--batching", f"{mine}:Mine")
    assert f"{mine}:5: Mine.add() raised AttributeError" in said


@pytest.mark.parametrize(
    ("returned", "plain"), [("np.int64(-3)", -3), ("np.float32(0.5)", 0.5), ("-3.5", -3.5)]
)
def test_numbers_of_numpy_enter_as_numbers_of_python(
    mine: Path, returned: str, plain: float
) -> None:
    mine.write_text(
        "import numpy as np\nclass Mine:\n"
        f"    def rank(self, uses, born, now):\n        return {returned}\n"
    )
    rank = EVICTION_ORDERS.build(f"{mine}:Mine").rank(1, 2, 3)
    assert (rank, type(rank)) == (plain, type(plain))
    assert servetwin(*KINDS["eviction"].arguments(f"{mine}:Mine")).code == 0


def test_an_error_in_an_inherited_method_names_the_plug_in(mine: Path) -> None:
    mine.write_text(
        "from servetwin.policies.schedulers.continuous import ContinuousBatching\n"
        "class Mine(ContinuousBatching):\n"
        "    def reserve(self, seq, cached, left):\n        return 1 / 0\n"
    )
    line = refused(*KINDS["batching"].arguments(f"{mine}:Mine"))
    assert f"batching: {mine}:4: Mine.schedule() raised ZeroDivisionError" in line
