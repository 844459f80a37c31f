"""What a write cannot do, and where one is computed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import Unsupported
from anyjax.torch import interop


def test_results_that_do_not_fit():
    with anyjax.torch.on_jax():
        with pytest.raises(Unsupported, match=r"add_.* gives float32\[3\], which .*int64\[3\]"):
            torch.arange(3).add_(1.5)
        with pytest.raises(Unsupported, match="out of the result's shape"):
            torch.add(torch.ones(3), 1, out=torch.ones(2))
        with pytest.raises(Unsupported, match="cannot hold"):
            torch.ones(3).add_(torch.ones(2, 3))


def test_a_tensor_of_torch_is_no_target_but_for_copies():
    x, plain = interop.to_jax(torch.ones(3)), torch.zeros(3)
    with pytest.raises(Unsupported, match="a tensor of torch"):
        plain.add_(x)
    with pytest.raises(Unsupported, match="a tensor of torch"):
        torch.add(x, 1, out=torch.tensor(0.0))
    with pytest.raises(Unsupported, match="a tensor of torch"):
        torch.tensor(0.0).add_(x.sum())
    plain.copy_(x)
    assert plain.tolist() == [1, 1, 1]
    x.copy_(torch.full((3,), 5.0))
    assert x.tolist() == [5, 5, 5]


def test_size_of_memory_that_others_share_stays():
    x = interop.to_jax(torch.ones(3))
    view = x[1:]
    for tensor in (x, view):
        with pytest.raises(Unsupported, match="resize_"):
            tensor.resize_(4)
    alone = interop.to_jax(torch.ones(3))
    assert alone.resize_(2, 2).tolist()[0] == [1, 1]
    assert alone.resize_(1).tolist() == [1]


def rows(*shape):
    return torch.arange(float(np.prod(shape))).reshape(shape)


def index(*numbers):
    return torch.tensor(numbers)


def put(x, at, values):
    x[at] = values


ALL = slice(None)
# Assignments to places of a tensor of [2, 3, 4, 5], through what is selected from it.
ASSIGNMENTS = {
    "side by side": lambda x: put(x[1], (ALL, ALL, index(1, -1)), rows(3, 4, 2)),
    "in front": lambda x: put(x[0], (index(2, 0), index(3, 1)), rows(2, 5)),
    "apart": lambda x: put(x[1], (index(2, 0), ALL, index(3, 1)), rows(2, 4)),
    "of a grid": lambda x: put(x[:, 1], (index(0, 1)[:, None], index(3, 1)), rows(2, 2, 5)),
    "a number": lambda x: put(x[:, :, 1], (ALL, index(1, 0)), 7.0),
    "a row for all": lambda x: put(x[:, :, 1], (ALL, index(1, 0)), rows(5)),
    "added": lambda x: x[1].index_put_([index(1, 1, 2)], rows(5), accumulate=True),
    "copied": lambda x: x[0].index_copy_(-1, index(3, 1), rows(3, 4, 2)),
    "twice selected": lambda x: put(x[:, 1][:, 2], (index(1, 0), index(4, 4)), rows(2)),
    "a mask": lambda x: put(x[1], rows(3, 4) % 2 == 0, 5.0),
}


@pytest.mark.parametrize("case", ASSIGNMENTS)
def test_what_is_assigned_through_a_selection(case):
    want = rows(2, 3, 4, 5)
    ASSIGNMENTS[case](want)
    x = rows(2, 3, 4, 5).numpy()

    def run(x):
        tensor = interop.torch_view(x)
        with anyjax.torch.on_jax():
            ASSIGNMENTS[case](tensor)
        return interop.jax_view(tensor)

    np.testing.assert_array_equal(run(jnp.asarray(x)), want)
    np.testing.assert_array_equal(jax.jit(run)(x), want)


def test_a_selection_is_assigned_to_in_its_owner():
    """In place, so that nothing of the owner is copied in a program to which it is donated, and
    divided over a mesh as before, however the assigned values are.
    """
    mesh = jax.make_mesh((8,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))

    @jax.jit
    def keys(hidden, weight):
        return (hidden @ weight.T).reshape(2, 3, 4, 8).swapaxes(1, 2)

    def step(cache, hidden, weight, at):
        tensor = interop.torch_view(cache)
        with anyjax.torch.on_jax():
            tensor[1].index_copy_(
                2, interop.torch_view(at), interop.torch_view(keys(hidden, weight))
            )
        return interop.jax_view(tensor)

    cache = jax.device_put(
        jnp.zeros((2, 2, 4, 16, 8)), jax.NamedSharding(mesh, jax.P(*[None] * 4, "model"))
    )
    weight = jax.device_put(jnp.ones((32, 16)), jax.NamedSharding(mesh, jax.P("model")))
    args = cache, jnp.ones((2, 3, 16)), weight, jnp.arange(3)
    program = jax.jit(step, donate_argnums=0).lower(*args).compile()
    assert program.memory_analysis().alias_size_in_bytes == cache.nbytes // 8
    assert "all-gather" not in program.as_text()
    sizes = [str(x.aval) for eqn in jax.make_jaxpr(step)(*args).eqns for x in eqn.outvars]
    assert "float32[2,4,16,8]" not in sizes  # of the selection
    assert program(*args).sharding.is_equivalent_to(cache.sharding, 5)
