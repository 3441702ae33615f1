"""Root mean square norms."""

import pytest
import torch
import torch.nn.functional as F

from servetwin.engine.models.operators import PLAIN


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-7)])
def test_rms_norm_equals_torch(dtype: torch.dtype, tolerance: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(*shape, generator=generator).to(dtype) for shape in [(5, 64), (64,)])
    expected = F.rms_norm(x.float(), (64,), weight.float(), 1e-5)
    torch.testing.assert_close(
        PLAIN.rms_norm(x, weight, 1e-5).float(), expected, rtol=tolerance, atol=tolerance
    )


def test_a_norm_may_have_other_weights_for_each_head() -> None:
    heads, weights = torch.randn(2, 5, 3, 8, generator=torch.Generator().manual_seed(0))
    together = PLAIN.rms_norm(heads, weights[0], 1e-5)
    for head in range(3):
        alone = PLAIN.rms_norm(heads[:, head], weights[0, head], 1e-5)
        assert torch.equal(together[:, head], alone)
