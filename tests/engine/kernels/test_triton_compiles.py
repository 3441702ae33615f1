"""The kernels compile for real cards, on a machine that has none: Triton brings the assembler.

The interpreter accepts programs that the compiler refuses, and knows no limit of shared memory.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.effort import FULL
from tests.support.paths import ROOT

pytest.importorskip("triton")
SHARED_BYTES = {80: 163 * 1024, 90: 227 * 1024}
"""Per multiprocessor of an A100 and an H100; a program may have no more."""


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90] if FULL else [90])
def test_every_kernel_compiles_for_the_shapes_of_real_models(
    architecture: int, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.compiled_kernels", str(architecture)],
        cwd=ROOT,
        env=os.environ | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    compiled = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["kernel"] for one in compiled} == {
        "attend_share", "merge_shares", "norm_rows", "rotate_heads", "gate_rows"
    }  # fmt: skip
    for one in compiled:
        assert one["machine_code_bytes"] > 0, one
        assert one["shared_bytes"] <= SHARED_BYTES[architecture], one
