"""``verify --technique``: what is refused before an engine starts."""

import pytest

from tests.support.command import refused

pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--technique", "int9"], "technique: unknown technique 'int9'"),
        (["--technique", "prefix-cache:indx=hash"], "technique prefix-cache: unknown parameter"),
        (["--technique", "prefix-cache", "--url", "http://x"], "--url: not with --technique"),
        (["--technique", "prefix-cache", "--why"], "--why: not with --technique"),
        (["--technique", "prefix-cache", "--utilisation", "0.5"], "--utilisation: not with"),
        (["--technique", "prefix-cache", "--hardware", "h100"], "--gpu: goes with --recorded"),
        (
            [
                "--technique",
                "prefix-cache",
                "--policy",
                "static+paged",
                "--policy",
                "chunked+paged",
            ],
            "--policy: not with --technique",
        ),
        (
            ["--technique", "copy-on-write"],
            "technique copy-on-write: it changes requests of which several answers are wanted",
        ),
        (["--without", "prefix-cache"], "--without: goes with --recorded"),
        (["--technique", "prefix-cache", "--preset", "vllm-v1"], "--preset: goes with --recorded"),
    ],
)
def test_bad_input_is_one_line(options: list[str], message: str) -> None:
    assert refused("verify", "--model", "tiny", *options).startswith(f"servetwin: {message}")


@pytest.mark.quiet
def test_what_cannot_run_is_refused_with_the_reason() -> None:
    line = refused("verify", "--model", "tiny", "--technique", "cascade:small=tiny")
    assert "technique cascade: the bundled engine cannot run it, it has nothing for" in line
