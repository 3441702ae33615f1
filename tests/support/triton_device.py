"""Where the tests of kernels that are written in Triton run: on a GPU, else in the interpreter.

``tests/conftest.py`` chooses, before Triton is imported for the first time.
"""

import pytest
import torch

from servetwin.engine.kernels.choose_operators import interprets

HAS_CUDA = torch.cuda.is_available()
if HAS_CUDA and interprets():
    raise RuntimeError("TRITON_INTERPRET=1 with a CUDA device: the kernels would not be compiled")
DEVICE = "cuda" if HAS_CUDA else "cpu"
DEVICES = [
    pytest.param(
        "cpu", marks=pytest.mark.skipif(not interprets(), reason="the kernels are compiled")
    ),
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device"),
        ],
    ),
]
