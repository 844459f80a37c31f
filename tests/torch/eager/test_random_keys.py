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


def test_a_key_from_outside_of_a_program_would_be_its_constant():
    @jax.jit
    def dropped(x):
        return interop.jax_view(dropout(interop.torch_view(x)))

    ones = jnp.ones(64)
    env = interop.default_env()
    with anyjax.torch.on_jax(rng=jax.random.key(0)), pytest.raises(MissingRng):
        dropped(ones)
    env.manual_seed(0)
    try:
        with env, pytest.raises(MissingRng, match="inside a program"):
            dropped(ones)
        with env:  # its seeds come from outside, one for each call
            masks = [interop.jax_jit(dropout)(ONES) for _ in range(2)]
        assert not torch.equal(*masks)
        jitted = jax.jit(
            lambda x: interop.jax_view(interop.jax_jit(torch.sin)(interop.torch_view(x)))
        )
        with env:
            jitted(ones)  # draws nothing
    finally:
        del env._thread.keys

    def with_a_key(x, key):
        with anyjax.torch.on_jax(rng=key):
            return interop.jax_view(dropout(interop.torch_view(x)))

    first, second = (jax.jit(with_a_key)(ones, jax.random.key(i)) for i in range(2))
    assert (first != second).any()


def test_seeds_inside_of_the_context():
    env = interop.default_env()
    try:
        with env:
            env.manual_seed(0)
            first = torch.rand(4)
            env.manual_seed(0)
            assert torch.equal(first, torch.rand(4))
            assert not torch.equal(first, torch.rand(4))
    finally:
        del env._thread.keys


@pytest.mark.parametrize("several", [False, True])
def test_shardings_leave_a_place_for_the_seed(several):
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    options = {"in_shardings": (device, device) if several else device, "donate_argnums": (0,)}
    run = interop.jax_jit(lambda x, y: dropout(x + y), options)
    first, second = (run(ONES.clone(), ONES) for _ in range(2))
    assert not torch.equal(first, second)
    assert set(first.tolist()) == {0.0, 4.0}


def test_what_draws_nothing_needs_no_key():
    functional = torch.nn.functional
    functions = (
        lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.0),
        lambda x: functional.rrelu(x, training=False),
        lambda x: dropout(x, 0.0),
    )
    for function in functions:
        run = jax.jit(lambda x, f=function: interop.call_torch(f, x))
        assert run(jnp.ones((1, 2, 3))).shape == (1, 2, 3)
        assert anyjax.from_torch(function).apply({}, jnp.ones((1, 2, 3))).shape == (1, 2, 3)
