"""Choice of device and dtype."""

import pytest
import torch

from servetwin.engine.models.device import choose_device, choose_dtype
from servetwin.workloads.errors import EngineError

CPU = torch.device("cpu")


def test_automatic_dtype_depends_on_the_device() -> None:
    assert choose_dtype("auto", CPU) is torch.float32
    assert choose_dtype("auto", torch.device("cuda")) is torch.bfloat16
    assert choose_dtype("bfloat16", CPU) is torch.bfloat16
    assert choose_dtype("float16", CPU) is torch.float16


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "unknown device 'gpu': use auto, cpu, cuda or cuda:N"),
        ("meta", "device 'meta' is not supported: use auto, cpu, cuda or cuda:N"),
        ("cuda:64", r"device 'cuda:64' is not here: torch sees \d+ CUDA devices"),
    ],
)
def test_an_impossible_device_is_refused(name: str, message: str) -> None:
    with pytest.raises(EngineError, match=f"^{message}$"):
        choose_device(name)
