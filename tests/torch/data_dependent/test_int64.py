import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import Unsupported

pytestmark = pytest.mark.sample(every=4)

BIG, SMALL = np.array([70000, 3]), np.array([7, 3])
BEYOND = {
    "product": lambda x: x * x,
    "product with a number": lambda x: (x * 50000 + x) % 97,
    "power": lambda x: x**3,
    "shift": lambda x: x << 16,
    "sum": lambda x: (x * 30000).expand(2, 2).sum(0),
    "sum of two": lambda x: x * 30000 + x * 30000,
    "difference": lambda x: -(x * 30000) - x * 30000,
    "cumsum": lambda x: (x * 30000).expand(2, 2).cumsum(0),
    "prod": lambda x: (x * 300).prod() * x[0],
    "cumprod": lambda x: (x + x).expand(2, 2).cumprod(0),
    "matmul": lambda x: x[None] @ x[:, None],
    "mv": lambda x: torch.mv(x[None], x),
    "squared": lambda x: x.square(),
    "hash": lambda x: (x * 2654435) ^ 17,
    "in place": lambda x: x.clone().mul_(x),
    "of int32": lambda x: x.int().expand(90000, 2).sum(),
    "accumulated": lambda x: torch.zeros(2, dtype=torch.int64).scatter_add(0, x * 0, x) * 50000,
    "put": lambda x: torch.arange(2).index_put((x * 0,), x, accumulate=True) * 50000,
    "limited by a tensor": lambda x: torch.arange(2).clamp(x.amax()) * 50000,
    "einsum": lambda x: torch.einsum("i,i->", x, x),
    "tensordot": lambda x: torch.tensordot(x, x, 1),
    "linear": lambda x: torch.nn.functional.linear(x[None], x[None], x[:1]),
    "conv": lambda x: torch.nn.functional.conv1d(x[None, None], x[None, None]),
    "kron": lambda x: torch.kron(x, x),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=2),
    "addr": lambda x: torch.addr(torch.diag(x), x, x),
    "cross": lambda x: torch.linalg.cross(x.repeat(2)[:3], x.repeat(2)[1:]),
    "lcm": lambda x: torch.lcm(x, x - 1),
    "diff": lambda x: (x * torch.tensor([-30000, 600000000])).diff(),
    "matrix power": lambda x: torch.linalg.matrix_power(torch.diag(x), 2),
    "index_add": lambda x: (x * 0).index_add(0, torch.tensor([1, 1]), x[:1].repeat(2) * 30000),
    "scatter_add": lambda x: x.scatter_add(0, torch.tensor([0, 0]), x[:1].repeat(2) * 30000),
    "scatter_reduce": lambda x: x.scatter_reduce(0, torch.tensor([0, 0]), x, "prod"),
    "put by product": lambda x: x.put(torch.tensor([0, 0]), x[:1].repeat(2) * 20000, True),
    "cast": lambda x: (x.float() * 1e6).long(),
    "cast just beyond": lambda x: (x.float() * 31000).to(torch.int64),
    "copied": lambda x: torch.zeros(2, dtype=torch.int64).copy_(x.float() * 40000),
    "sum of floats": lambda x: (x.float() * 40000).sum(0, dtype=torch.int64),
}


@pytest.mark.parametrize("name", BEYOND)
def test_more_than_32_bits_raises_and_makes_floats_nan(name):
    both = lambda x: (BEYOND[name](x), x.float())
    model = anyjax.from_torch(both)
    for call in (model, lambda x: model.apply({}, x)):
        with pytest.raises(Unsupported, match=r"beyond 2\*\*31(.|\n)*jax_enable_x64") as error:
            call(BIG)
        assert "test_int64.py:" in str(error.value)
    assert np.isnan(jax.jit(model.apply)({}, BIG)[1]).all()
    expected = BEYOND[name](torch.from_numpy(SMALL)).numpy()
    np.testing.assert_array_equal(model(SMALL)[0], expected)
    np.testing.assert_array_equal(jax.jit(model.apply)({}, SMALL)[0], expected)


@pytest.mark.parametrize("factor", [1, -1])
def test_the_largest_numbers_are_let_through(factor):
    model = anyjax.from_torch(lambda x, y: x * y + 0)
    x, y = np.array([46340, 65536, 2**30]), factor * np.array([46340, 32767, 1])
    np.testing.assert_array_equal(model(x, y), x * y)
    with pytest.raises(Unsupported):
        model(x, factor * np.array([46342, 1, 1]))


def test_the_negative_of_the_least_number_is_checked():
    model = anyjax.from_torch(lambda x: x * -1)
    assert model(np.array([2**31 - 1])).tolist() == [1 - 2**31]
    with pytest.raises(Unsupported, match="beyond"):
        model(np.array([-(2**31)]))


LEAST = {"neg": torch.neg, "abs": torch.abs, "rsub": lambda x: 1 - x, "div": lambda x: x // -1}
STEPS = {
    "next": lambda x: x + 1,
    "in place": lambda x: x.clone().sub_(1),
    "reversed": lambda x: 9 + x,
}


@pytest.mark.parametrize("name", LEAST | STEPS)
def test_the_ends_of_32_bits(name):
    """Positions are numbers, too; the program of a small step has no check."""
    function = (LEAST | STEPS)[name]
    model, ends = anyjax.from_torch(function), (np.array([5, -(2**31)]), np.array([2**31 - 1]))
    raised = 0
    for x in ends:
        expected = function(torch.from_numpy(x)).numpy()
        for call in (model, lambda x: model.apply({}, x)):
            if (np.abs(expected + 0.5) > 2**31).any():
                raised += 1
                with pytest.raises(Unsupported, match="beyond"):
                    call(x)
            else:
                np.testing.assert_array_equal(call(x), expected)
    assert raised == 2
    checks = conditions(lambda x: (function(x.long()), x.float()), IDS)
    assert (checks > 0) == (name in LEAST)


@pytest.mark.parametrize("name", [*BEYOND, *STEPS])
def test_operator_by_operator(name):
    function = (BEYOND | STEPS)[name]
    with anyjax.torch.on_jax():
        np.testing.assert_array_equal(
            function(torch.tensor(SMALL)).numpy(), function(torch.from_numpy(SMALL)).numpy()
        )
        for x in (BIG, np.array([2**31 - 1, 1]), np.array([-(2**31), 1])):
            try:
                out = function(torch.tensor(x)).numpy()
            except Unsupported as error:
                assert "beyond" in str(error)
                break
            np.testing.assert_array_equal(out, function(torch.from_numpy(x)).numpy())
        else:
            pytest.fail("nothing was refused")


def test_casts_of_what_fits():
    x = np.float32([-(2.0**31), 2**31 - 128, 0.5])
    model = anyjax.from_torch(torch.Tensor.long)
    assert model(x).tolist() == [-(2**31), 2**31 - 128, 0]


def test_products_with_zero():
    model = anyjax.from_torch(lambda x: x.prod())
    assert model(np.array([2**30] * 9 + [0])) == 0
    with pytest.raises(Unsupported):
        model(np.array([2**16, 2**16, 2**16]))


def conditions(function, *args):
    jaxpr = str(jax.make_jaxpr(anyjax.from_torch(function).apply)({}, *args))
    return jaxpr.count("is_finite") + jaxpr.count("reduce_and")


X = np.ones((2, 5), np.float32)
IDS = np.ones((2, 5), np.int32)
SAFE = {
    "positions": lambda x: torch.arange(x.shape[1]) * x.shape[0] + 1,
    "of a mask": lambda x: ((x > 0).long().cumsum(1) * (x > 0)).sum(),
    "padding": lambda x: (x.ne(1).int().cumsum(1).type_as(x) + 3) * x.ne(1).int() * 2,
    "places": lambda x: x.argmax(1) * 5 + x.argsort(1)[:, 0] * x.topk(2)[1][:, 0],
    "one-hot": lambda x: torch.nn.functional.one_hot((x > 0).long(), 3).cumsum(0).sum() * 7,
    "a step": lambda x: x + 2,
    "a remainder": lambda x: (x.long() % 32) * (x.long() & 15) * (x.long().clamp(0, 9) // 2),
    "moved": lambda x: (
        torch.cat([torch.arange(5) * (x > 0), (x == 1).long()]).T[1:].flip(0) * 70000
    ),
    "written": lambda x: torch.zeros(5, dtype=torch.long).index_fill(0, (x > 0)[0].long(), 3) * 9,
    "shifted": lambda x: (x > 0).long() << torch.arange(5),
    "int32": lambda x: x.int() * x.int(),
}


@pytest.mark.parametrize("name", SAFE)
def test_what_is_known_to_be_small_is_not_checked(name):
    function = SAFE[name]
    x = X if name == "places" else IDS
    assert conditions(lambda x: (function(x), x.float()), x) == 0
    assert conditions(lambda x: (x.long() * x.long(), x.float()), x) > 0


def test_nothing_is_checked_with_x64():
    with jax.enable_x64(True):
        model = anyjax.from_torch(lambda x: x * x)
        assert model(BIG)[0] == 70000**2


def test_gradients_and_vmap_of_a_checked_program():
    model = anyjax.from_torch(lambda x, i: x * (i * i).float())
    grad = jax.jit(jax.grad(lambda x, i: model.apply({}, x, i).sum()))
    assert grad(jnp.ones(2), SMALL).tolist() == [49, 9] and np.isnan(grad(jnp.ones(2), BIG)).all()
    out = jax.vmap(lambda i: model.apply({}, jnp.float32(1), i))(BIG)
    assert np.isnan(out[0]) and out[1] == 9


def test_inside_a_loop_nothing_can_be_checked():
    def function(x):
        step = lambda i, x: (i + 1, x * x)
        return torch.while_loop(lambda i, x: i < 2, step, (torch.tensor(0), x))[1]

    with pytest.warns(anyjax.errors.UncheckedValues, match="jax_enable_x64"):
        assert anyjax.from_torch(function)(SMALL).tolist() == [2401, 81]


LOST = BEYOND | {
    "torch's own": torch.square,
    "below": lambda x: x * x > 5,
    "of two": lambda x: {"a": x, "b": (x * x) % 7},
}


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("how", ["apply", "vmap", "model"])
def test_integers_alone_are_warned_of_where_nothing_checks_them(name, how):
    """Once, with the line; not where a call of the model looks at them."""
    model = anyjax.from_torch(LOST[name])
    run = jax.jit(model if how == "model" else lambda x: model.apply({}, x))
    run = jax.vmap(lambda x: model.apply({}, x)) if how == "vmap" else run
    with pytest.warns(anyjax.errors.UncheckedValues, match="jax_enable_x64") as said:
        run(SMALL[None] if how == "vmap" else SMALL)
    assert len(said) == 1 and "test_int64.py:" in str(said[0].message)
    model(SMALL)
    model.apply({}, SMALL)


TOLD = SAFE | {
    "floats beside": lambda x: (x.long() * x.long(), x.float()),
    "chosen by floats": lambda x: (x.long() * x.long()).float().argmax(),
    "count": lambda x: (x > 0).sum(),
    "count of rows": lambda x: (x == 1).cumsum(1).amax(),
    "looked up": lambda x: torch.eye(9)[x.long().cumsum(1)].argmax(-1),
    "other integers": lambda x: (x.long() * x.long(), x)[1],
}


@pytest.mark.parametrize("name", TOLD)
def test_no_warning_where_no_integer_of_the_output_may_overflow(name):
    x = X if name == "places" else IDS
    jax.jit(anyjax.from_torch(TOLD[name]).apply)({}, x)


def test_a_cast_to_64_bits_warns_once():
    model = anyjax.from_torch(lambda x: (x.double() + 1).double().float())
    with pytest.warns(anyjax.errors.UncheckedValues, match="jax_enable_x64") as said:
        warnings.simplefilter("default")
        model(np.ones(2, np.float32))
    assert len(said) == 1 and "test_int64.py:" in str(said[0].message)


def test_multiples_of_neighbours_that_floats_round_to_one():
    model = anyjax.from_torch(lambda x: torch.lcm(x, x + 1))
    assert model(jnp.array([7])).tolist() == [56]
    with pytest.raises(Unsupported, match="lcm"):
        model(jnp.array([2**30]))
