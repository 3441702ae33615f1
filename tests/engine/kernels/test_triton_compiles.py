"""The kernels compile for real cards, on a machine that has none: Triton brings the assembler.

The interpreter accepts programs that the compiler refuses, and knows no limit of shared memory.
"""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytest.importorskip("triton")
SHARED_BYTES = {80: 163 * 1024, 90: 227 * 1024}
"""Per multiprocessor of an A100 and an H100; a program may have no more."""


@pytest.mark.slow
def test_every_kernel_compiles_for_the_shapes_of_real_models(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.compiled_kernels", *map(str, SHARED_BYTES)],
        cwd=ROOT,
        env=os.environ | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    compiled = [json.loads(line) for line in done.stdout.splitlines()]
    kernels = (
        "attend_share", "merge_shares", "norm_rows", "rotate_heads", "gate_rows", "multiply_codes",
    )  # fmt: skip
    assert {(one["architecture"], one["kernel"]) for one in compiled} == {
        *product(SHARED_BYTES, kernels)
    }
    for one in compiled:
        assert one["machine_code_bytes"] > 0, one
        assert one["shared_bytes"] <= SHARED_BYTES[one["architecture"]], one
