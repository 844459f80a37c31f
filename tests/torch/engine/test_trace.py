"""Views, writes, constants, randomness and gradients through the engine."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import AnyjaxError, DataDependent, MissingOps, MissingRng
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def both(function, *arrays):
    """(JAX under jit, torch) of one function of tensors."""
    want = function(*[torch.from_numpy(np.array(a)) for a in arrays])
    model = anyjax.from_torch(function)
    return jax.jit(lambda *xs: model.apply({}, *xs))(*arrays), want


def view_of_view(x):
    x = x.clone()
    x.view(2, 6).t()[1:3, 0] = 7
    return x


def slice_assignment(x):
    out = torch.zeros(4, 4)
    out[1:, ::2] = x[:, 1:3]
    return out


def mask_assignment(x):
    x = x * 1
    x[x > 0] = -1.5
    return x


def out_argument(x):
    out = torch.empty(3, 4)
    torch.add(x, 1, out=out)
    return out


def chain_of_writes(x):
    y = x.clone()
    row, column = y[1], y[:, 2]
    row.add_(10)
    column.mul_(2)
    y.transpose(0, 1)[0].fill_(3)
    return y, row, column


def constants(x):
    grid = torch.arange(4).tolist()
    step = torch.tensor(2.5).item()
    return x[:, grid[1]] * step + float(np.asarray(torch.ones(2)).sum())


def inner_grad(x):
    return torch.func.grad(lambda a: (a**3).sum())(x)


def inner_vmap(x):
    return torch.vmap(lambda a, b: (a * b).sum())(x, x + 1)


def inner_vmap_of_grad(x):
    return torch.vmap(torch.func.grad(lambda a: (a**3).sum()))(x)


def vmap_of_constants(x):
    at = torch.arange(4)
    row = torch.vmap(lambda i, j: torch.div(i, 2, rounding_mode="trunc") >= 1, (None, 0))
    return torch.vmap(row, (0, None))(at, at) * torch.vmap(lambda _: torch.ones(4))(at) * x[:1]


def selected_by_like(x):
    keep = torch.full_like(x, True).bool()
    keep[1, torch.arange(2)] = False
    return x[keep & x.new_ones(3, 4, dtype=torch.bool)]


@pytest.mark.parametrize(
    "function",
    [view_of_view, slice_assignment, mask_assignment, out_argument, chain_of_writes, constants,
     inner_grad, inner_vmap, inner_vmap_of_grad, vmap_of_constants, selected_by_like],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_same_as_torch(function):
    got, want = both(function, X)
    assert_close(got, want, reduction=12)


def test_inputs_are_not_written_to():
    x = jnp.asarray(X)
    out = anyjax.from_torch(lambda t: t.add_(1))(x)
    assert_close(out, X + 1)
    assert_close(x, X)


@pytest.mark.filterwarnings("ignore::anyjax.errors.UncheckedValues")
def test_dtypes_that_torch_code_sees():
    def function(ids, x):
        assert ids.dtype is torch.int64
        assert ids.argmax().dtype is torch.int64
        assert (ids > 1).sum().dtype is torch.int64
        assert ids.int().dtype is torch.int32
        assert (ids.int() + 1).dtype is torch.int32
        assert ids.int().sum().dtype is torch.int64
        assert x.double().dtype is torch.float64
        assert (x.double() + x).dtype is torch.float64
        assert (ids * 0.5).dtype is torch.float32
        assert (x.bfloat16() + 1.0).dtype is torch.bfloat16
        return ids * x.bfloat16()

    out = anyjax.from_torch(function)(np.arange(4), X)
    assert out.dtype == jnp.bfloat16


def test_no_grad_regions_and_detach_stop_gradients():
    def function(x):
        with torch.no_grad():
            scale = x.sum()
        return (x * scale + x.detach() * 2).sum()

    model = anyjax.from_torch(function)
    got = jax.grad(lambda x: model.apply({}, x))(jnp.asarray(X))
    assert_close(got, np.full_like(X, X.sum()))


def test_a_callers_no_grad_does_not_stop_gradients():
    model = anyjax.from_torch(lambda x: (x * x).sum())
    with torch.no_grad():
        got = jax.grad(lambda x: model.apply({}, x))(jnp.asarray(X))
    assert_close(got, 2 * X)


def test_randomness_is_an_argument():
    model = anyjax.from_torch(torch.nn.Dropout(0.5).train())
    x = np.ones((64, 64), np.float32)
    one, two = (model(x, rng=jax.random.key(i)) for i in (0, 1))
    assert_close(model(x, rng=jax.random.key(0)), one)
    assert not np.array_equal(one, two)
    assert 0.4 < float((one == 0).mean()) < 0.6
    assert_close(model.eval()(x), x)


def test_random_constants_take_the_key_too():
    model = anyjax.from_torch(lambda x: x + torch.rand(3, 4))
    one, two = (model(X, rng=jax.random.key(i)) for i in (0, 1))
    assert not np.array_equal(one, two)


def test_missing_rng():
    with pytest.raises(MissingRng) as caught:
        anyjax.from_torch(torch.nn.Sequential(torch.nn.Dropout(0.5)).train())(X)
    lines = str(caught.value).splitlines()
    assert lines[0] == "aten.dropout.default draws random numbers and there is no rng"
    assert lines[1].startswith("  where: 0 (Dropout)")
    assert "rng=jax.random.key(0)" in lines[3]
    assert len(lines) == 5


def test_missing_rng_of_a_module_without_code_of_its_own():
    """The line of the call, not one of anyjax's."""
    model = anyjax.from_torch(
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout())
    ).train()
    loss = lambda params: model.apply(params, X).sum()
    calls = [lambda _: model(X), loss, jax.jit(loss), jax.grad(loss)]
    for call in calls:
        with pytest.raises(MissingRng) as caught:
            call(model.params)
        assert caught.value.where.startswith("1 (Dropout) at ")
        assert "tests/torch/engine/test_trace.py:" in caught.value.where


def test_data_dependent_control_flow():
    def function(x):
        return x * int(x.sum() > 0)

    model = anyjax.from_torch(function)
    with pytest.raises(DataDependent) as caught:
        jax.jit(lambda x: model.apply({}, x))(X)
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("needs the values of x while they are traced")
    assert "test_trace.py:" in lines[1]
    assert len(lines) == 5
    assert caught.value.arguments == ("x",)
    assert_close(model.apply({}, jnp.asarray(X)), X * (X.sum() > 0))


@pytest.mark.parametrize(
    "read", [lambda x: x.tolist(), lambda x: x.numpy(), lambda x: int(x[0, 0])]
)
def test_python_values_of_traced_tensors(read):
    model = anyjax.from_torch(lambda x: x * np.asarray(read(x)).sum())
    with pytest.raises(DataDependent, match="needs the values of x"):
        jax.jit(lambda x: model.apply({}, x))(X)


torch.library.define("anyjax_test::alpha", "(Tensor x) -> Tensor")
torch.library.define("anyjax_test::beta", "(Tensor x, float scale=2.0) -> Tensor")
for _name in ("alpha", "beta"):
    torch.library.impl(f"anyjax_test::{_name}", "Meta", lambda x, scale=0: torch.empty_like(x))


class Odd(torch.nn.Module):
    def forward(self, x):
        return torch.ops.anyjax_test.alpha(x) + torch.ops.anyjax_test.beta(x, 3.0)


def test_messages_may_name_traced_tensors():
    seen = []
    model = anyjax.from_torch(
        lambda x: (seen.append(f"{x.sum()}, {x[0]!r}, {torch.ones(())}"), x)[1]
    )
    jax.jit(lambda x: model.apply({}, x))(X)
    assert seen == ["<torch.float32 [], traced>, <torch.float32 [4], traced>, 1.0"]


def test_all_missing_ops_at_once():
    with pytest.raises(MissingOps) as caught:
        anyjax.from_torch(torch.nn.Sequential(torch.nn.ReLU(), Odd()))(X)
    error = caught.value
    assert error.ops == ("anyjax_test.alpha.default", "anyjax_test.beta.default")
    text = str(error)
    assert text.startswith(
        "no lowering for 2 operators: anyjax_test.alpha.default, anyjax_test.beta.default"
    )
    assert "in 1 (Odd) at tests/torch/engine/test_trace.py:" in text
    assert "@anyjax.lowers(torch.ops.anyjax_test.alpha.default)" in text
    assert "def alpha(x): ..." in text


def test_users_add_operators():
    torch.library.define("anyjax_test::gamma", "(Tensor x, float scale=2.0) -> Tensor")

    @anyjax.lowers(torch.ops.anyjax_test.gamma)
    def gamma(x, scale):
        return x * scale

    assert_close(anyjax.from_torch(lambda x: torch.ops.anyjax_test.gamma(x))(X), 2 * X)


def test_a_shape_mistake_names_module_and_line():
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(4, 3))
    with pytest.raises(AnyjaxError) as caught:
        anyjax.from_torch(net)(X)
    lines = str(caught.value).splitlines()
    assert lines[1].startswith("  where: 1 (Linear)")
    assert "float32[3,3]" in lines[2]
    assert len(lines) == 5


def test_a_finished_trace_leaves_torch_as_it_was():
    flags = (
        torch.compiler.is_compiling(),
        torch.is_grad_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
    )
    with pytest.raises(ZeroDivisionError):
        anyjax.from_torch(lambda x: x / (1 // 0))(X)
    assert flags == (
        torch.compiler.is_compiling(),
        torch.is_grad_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
    )
    assert type(torch.ones(2) + 1) is torch.Tensor


def test_a_write_inside_no_grad_keeps_the_gradient():
    def function(x):
        y = x * 2
        with torch.no_grad():
            y.clamp_(max=1.0)
            y[0] *= 3
        return (y**2).sum()

    given = torch.from_numpy(X).requires_grad_()
    function(given).backward()
    model = anyjax.from_torch(function)
    assert_close(jax.grad(lambda x: model.apply({}, x))(jnp.asarray(X)), given.grad)


def test_tensors_from_outside_may_be_written_to():
    outside = torch.zeros(3, 4)

    def function(x):
        y = torch.empty_like(outside)
        y.copy_(x)
        outside.add_(x)
        return outside * 2 + y

    model = anyjax.from_torch(function)
    with pytest.warns(anyjax.errors.StateDropped, match="outside"):
        assert_close(model(X), 3 * X)
    _, state = model.apply({}, X, mutable=True)
    out, state = model.apply({}, X, state=state, mutable=True)
    assert_close(out, 5 * X)
    assert_close(state["outside"], 2 * X)
    assert float(outside.abs().max()) == 0


def test_dropout_that_does_nothing_is_its_input():
    def function(x):
        x = x * 1
        torch.nn.functional.dropout(x, training=False).add_(1)
        return x

    assert_close(anyjax.from_torch(function)(X), X + 1)


def test_copies_are_no_aliases():
    def function(x):
        x = x * 1
        x.t().contiguous().add_(10)
        x.transpose(0, 1).reshape(-1).mul_(3)
        x.reshape(-1).add_(1)
        return x

    assert_close(anyjax.from_torch(function)(X), X + 1)


IN_PLACE = ["ior", "iand", "ixor", "ilshift", "irshift", "iadd", "isub", "imul", "ifloordiv"]
IN_PLACE += ["imod", "ipow"]


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_operators_of_python(name):
    write = getattr(operator, name)

    def function(x, other):
        x, y = x.clone(), x.clone()
        one = write(x[1:], 2)
        with torch.no_grad():
            two = write(y[:2], other[:2])
        return x, y, one, two

    got, want = both(function, np.array([5, 6, 7]), np.array([1, 2, 3]))
    assert_close(got, want)


def window(x):
    at = torch.arange(x.shape[-1])
    far = (at - at[:, None]).expand(2, -1, -1)
    return torch.where((far <= 0) & (far > -50), x.expand_as(far), 0).sum(-1) + far[:, 7]


def numbers(x):
    return (torch.arange(3 * 2**20) // 3)[::4099] + x.sum().int()


@pytest.mark.parametrize("function", [window, numbers])
def test_large_constants_are_computed_by_the_program(function):
    """What is made of small constants, or counted up, is not stored in the program."""
    x = np.linspace(-1, 1, 1100, dtype=np.float32)
    model = anyjax.from_torch(function)
    consts = jax.make_jaxpr(lambda x: model.apply({}, x))(x).consts
    assert sum(c.size for c in consts) < 10 * 1100
    got, want = both(function, x)
    assert_close(got, want.numpy())


def test_small_constants_are_known():
    """A mask of a short text may be asked for its values."""

    def asks(x):
        at = torch.arange(x.shape[-1])
        return x * len((at > at[:, None]).nonzero())

    got, want = both(asks, np.ones(40, np.float32))
    assert_close(got, want.numpy())
