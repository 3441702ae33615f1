"""A C file is compiled once, and the engine runs where nothing compiles it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from servetwin.engine.native import compiler
from servetwin.engine.native.compiler import load_compiled
from servetwin.workloads.files import cache_folder

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "number.c"
    path.write_text("int number(void) { return NUMBER; }\n")
    return path


def kept() -> list[Path]:
    return sorted(cache_folder().iterdir())


def test_each_shape_and_each_source_is_compiled_once(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (3, 4, 3):
        library = load_compiled(source, {"NUMBER": number})
        assert library is not None
        assert library.number() == number
    assert len(kept()) == 2
    monkeypatch.setattr(subprocess, "run", None)  # a call would raise
    assert load_compiled(source, {"NUMBER": 4}) is not None
    monkeypatch.undo()


def test_a_changed_source_is_compiled_again(source: Path) -> None:
    load_compiled(source, {"NUMBER": 3})
    source.write_text("int number(void) { return 2 * NUMBER; }\n")
    library = load_compiled(source, {"NUMBER": 3})
    assert library is not None
    assert library.number() == 6


def test_a_changed_header_compiles_its_source_again(source: Path) -> None:
    header = source.with_name("number.h")
    source.write_text('#include "number.h"\nint number(void) { return NUMBER; }\n')
    for number in (3, 4):
        header.write_text(f"#define NUMBER {number}\n")
        library = load_compiled(source, {})
        assert library is not None
        assert library.number() == number


@pytest.mark.parametrize("text", ["int number(void) {", "#include <no/such/header.h>\n"])
def test_what_does_not_compile_is_left(source: Path, text: str) -> None:
    source.write_text(text)
    assert load_compiled(source, {}) is None
    assert kept() == []


def test_nothing_is_left_of_a_compilation_that_was_ended(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a signal at once; by the next compilation where the process was killed."""

    def ended(command: list[str], **options: object) -> None:
        Path(command[command.index("-o") + 1]).write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", ended)
        with pytest.raises(KeyboardInterrupt):
            load_compiled(source, {"NUMBER": 1})
    assert kept() == []
    dead = subprocess.Popen(["true"])
    dead.wait()
    half = cache_folder() / f".number.so.{dead.pid}.{os.uname().nodename}.draft"
    half.write_bytes(b"half")
    assert load_compiled(source, {"NUMBER": 1}) is not None
    assert len(kept()) == 1


@pytest.mark.parametrize("name", ["no-such-compiler", "false"])
def test_without_a_compiler_there_is_no_library(
    source: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", name)
    assert load_compiled(source, {"NUMBER": 1}) is None


def test_a_cache_that_cannot_be_written_is_no_error(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load_compiled(source, {"NUMBER": 1}) is None


def test_a_damaged_file_in_the_cache_is_made_again(source: Path) -> None:
    load_compiled(source, {"NUMBER": 5})
    (library,) = kept()
    library.unlink()
    library.write_text("not a library")
    again = load_compiled(source, {"NUMBER": 5})
    assert again is not None
    assert again.number() == 5


def test_an_old_compiler_does_without_some_flags(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "CHOICES", (("-fno-such-flag",), ()))
    assert load_compiled(source, {"NUMBER": 1}) is not None
