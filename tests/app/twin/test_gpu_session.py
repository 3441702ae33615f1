"""The GPU session's plan and table, tried without a GPU."""

import json
from pathlib import Path

from app.twin import gpu_session


def test_every_shape_is_calibrated_and_verified_under_every_policy(tmp_path: Path) -> None:
    parts = dict(gpu_session.parts(tmp_path, ["llama-1b"], "cuda"))
    assert list(parts) == ["tests", "calibrate llama-1b", "verify llama-1b"]
    verify = parts["verify llama-1b"]
    assert verify.count("--policy") == 5
    assert verify[verify.index("--device") + 1] == "cuda"


def test_a_verdict_becomes_a_row_of_the_table() -> None:
    metric = {
        "predicted": {"value": 100.0},
        "measured": 98.0,
        "error": 0.0204,
        "noise": 0.01,
        "limit": 0.03,
    }
    rows = [metric, {**metric, "limit": None}]
    one = {"policy": "continuous+paged", "comparison": {"metrics": rows, "holds": True}}
    output = "chatter\n" + json.dumps({"verifications": [one]})
    assert gpu_session._rows("verify llama-1b", output) == [
        "| llama-1b | continuous+paged | 100 / 98 (+2.0 %, noise 1.0 %) | holds |"
    ]
    assert gpu_session._rows("calibrate llama-1b", output) == []


def test_a_part_that_takes_too_long_does_not_stop_the_rest() -> None:
    code, output = gpu_session._run(["-c", "import time; time.sleep(60)"], limit_s=0.5)
    assert (code, output) == (124, "took more than 0.5 s")
