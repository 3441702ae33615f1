"""The two ways of computing a state, against the recurrence itself in float64."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from servetwin.engine.kv.state_store import StateRun, StateStep, StateStore
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.linear import Products
from servetwin.engine.models.model_config import ModelConfig, StateSpaceConfig, model_preset
from servetwin.engine.models.state_space import StateSpace
from servetwin.engine.models.tensor_layout import layer_stacks
from servetwin.engine.models.weights import stack_shape
from servetwin.workloads.errors import EngineError
from servetwin.workloads.models.description import StateSizes

SIZES = StateSizes(heads=4, head_dim=8, groups=2, state_dim=6, kernel=4)
MODEL = replace(model_preset("tiny"), state_space=StateSpaceConfig((0,), SIZES))
BLOCK = 16
CPU = torch.device("cpu")


def mixer(seed: int, model: ModelConfig = MODEL) -> tuple[StateSpace, dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: torch.randn(stack_shape(stack), generator=generator) * 0.3
        for name, stack in layer_stacks(model, 0).items()
    }
    return StateSpace(model, weights, Products(Computation())), weights


def rows(count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randn(count, MODEL.hidden_size, generator=generator)


def by_recurrence(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Row by row in float64, as equations 1 and 2 of the paper say."""
    weights = {name: weight.double() for name, weight in weights.items()}
    inner, shared = SIZES.inner, SIZES.groups * SIZES.state_dim
    share = SIZES.heads // SIZES.groups
    seen = torch.zeros(SIZES.kernel, SIZES.convolved, dtype=torch.float64)
    state = torch.zeros(SIZES.heads, SIZES.head_dim, SIZES.state_dim, dtype=torch.float64)
    outputs = []
    for row in x.double():
        gate, mixed, steps = (weights["state_in"] @ row).split((inner, SIZES.convolved, 4))
        seen = torch.cat((seen[1:], mixed[None]))
        convolved = (seen * weights["convolution"].squeeze(1).T).sum(0)
        convolved = torch.nn.functional.silu(convolved + weights["convolution_bias"])
        values = convolved[:inner].view(SIZES.heads, SIZES.head_dim)
        writes, reads = convolved[inner:].view(2, SIZES.groups, -1).repeat_interleave(share, 1)
        steps = torch.nn.functional.softplus(steps + weights["step_bias"])
        decay = torch.exp(-steps * weights["decay"].exp())
        state = state * decay[:, None, None]
        state = state + steps[:, None, None] * values[:, :, None] * writes[:, None]
        output = (state * reads[:, None]).sum(2) + weights["skip"][:, None] * values
        gated = (output.flatten() * torch.nn.functional.silu(gate)).view(SIZES.groups, -1)
        normed = gated / (gated.square().mean(1, keepdim=True) + MODEL.norm_eps).sqrt()
        outputs.append(weights["state_out"] @ (normed.flatten() * weights["gated_norm"]))
    assert shared * 2 + inner == SIZES.convolved
    return torch.stack(outputs)


def step(store: StateStore, *runs: StateRun) -> StateStep:
    return StateStep(store, [list(runs)])


@given(
    st.lists(st.integers(1, 90), min_size=1, max_size=4), st.integers(0, 20), st.integers(0, 999)
)
def test_chunks_and_single_rows_are_the_recurrence(
    chunks: list[int], singles: int, seed: int
) -> None:
    compute, weights = mixer(seed)
    x = rows(sum(chunks) + singles, seed)
    store = StateStore(MODEL, 4 * BLOCK, BLOCK, dtype=torch.float32, device=CPU)
    for stored in store.tensors:
        stored.fill_(torch.nan)
    place, outputs = 0, []
    block = torch.tensor([2])
    for count in chunks:
        run = StateRun(slice(0, count), block if place else None, block, 2, 2)
        outputs.append(_through(compute, store, run, x[place : place + count]))
        place += count
    for row in x[place:]:
        outputs.append(
            _through(compute, store, StateRun(torch.tensor([0]), block, block), row[None])
        )
    expected = by_recurrence(weights, x)
    assert (torch.cat(outputs) - expected).abs().max() < 2e-5 * expected.abs().max() + 1e-5
    assert store.tensors[1][0, [0, 1, 3]].isnan().all()


def _through(
    compute: StateSpace, store: StateStore, run: StateRun, x: torch.Tensor
) -> torch.Tensor:
    states = step(store, run)
    output = compute(0, x, x, x, states)
    states.commit()
    return output


def test_small_decays_beside_large_ones_keep_their_digits() -> None:
    """After a row that clears the state, sums of logarithms are large, their differences small."""
    compute, weights = mixer(7)
    weights["decay"][:] = torch.log(torch.tensor([1.0, 50.0, 400.0, 0.01]))
    compute = StateSpace(MODEL, weights, Products(Computation()))
    x = rows(64, 7)
    store = StateStore(MODEL, BLOCK, BLOCK, dtype=torch.float32, device=CPU)
    output = _through(compute, store, StateRun(slice(0, 64), None, torch.tensor([0])), x)
    expected = by_recurrence(weights, x)
    assert (output - expected).abs().max() < 2e-5 * expected.abs().max()


def test_groups_divide_the_heads() -> None:
    with pytest.raises(EngineError, match="n_groups 3 does not divide the 4 heads of a state"):
        StateSpaceConfig((0,), SIZES._replace(groups=3))
