"""Random numbers: torch's generator seeds them, keys replace it, and no mask is met twice."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
import torch
from torch.nn.functional import dropout
from torch.utils.checkpoint import checkpoint

import anyjax
from anyjax.errors import MissingRng
from anyjax.torch import interop

ONES = interop.to_jax(torch.ones(64))


def test_seeds_are_torchs():
    draws = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        with anyjax.torch.on_jax():
            draws.append(
                (torch.randn(5), dropout(ONES), torch.randperm(9), torch.rand(3).normal_())
            )
    same = lambda a, b: [torch.equal(x, y) for x, y in zip(a, b, strict=True)]
    assert all(same(draws[0], draws[1]))
    assert not any(same(draws[0], draws[2]))


def test_a_generator_has_its_own_numbers():
    with anyjax.torch.on_jax():
        first, second = (
            torch.rand(4, generator=torch.Generator().manual_seed(1)) for _ in range(2)
        )
        generator = torch.Generator().manual_seed(1)
        third, fourth = (torch.rand(4, generator=generator) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(first, third)
    assert not torch.equal(third, fourth)


def test_masks_differ_and_their_gradient_is_theirs():
    x = ONES.clone().requires_grad_()
    masks = [dropout(x) for _ in range(3)]
    assert len({tuple(m.tolist()) for m in masks}) == 3
    masks[1].sum().backward()
    assert torch.equal(x.grad, masks[1].detach())


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpoint_draws_its_mask_again(use_reentrant):
    x = ONES.clone().requires_grad_()
    y = checkpoint(dropout, x, use_reentrant=use_reentrant)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_keys_take_the_generators_place():
    state = torch.get_rng_state()
    draws = []
    for _ in range(2):
        with anyjax.torch.on_jax(rng=jax.random.key(7)):
            with anyjax.torch.on_jax():  # which goes on with the key
                draws.append(torch.rand(4))
            draws.append(torch.rand(4))
    assert torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[1])
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("code", [dropout, lambda x: x + torch.rand(64)])
def test_a_compiled_program_needs_a_key(code):
    with pytest.raises(MissingRng, match="the same numbers in every call"):
        jax.jit(lambda x: interop.call_torch(code, x))(jnp.ones(64))

    @jax.jit
    def with_key(x, key):
        with anyjax.torch.on_jax(rng=key):
            return interop.call_torch(code, x)

    keys = jax.random.split(jax.random.key(0), 2)
    first, second, again = (with_key(jnp.ones(64), k) for k in (*keys, keys[0]))
    assert (first == again).all()
    assert (first != second).any()


def test_gradients_of_jax_without_jit_need_none():
    grad = jax.grad(lambda x: interop.call_torch(lambda x: dropout(x).sum(), x))
    assert set(grad(jnp.ones(64)).tolist()) == {0.0, 2.0}
