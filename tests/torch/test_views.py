"""Random programs of views and writes: values and gradients are torch's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import anyjax
from anyjax.errors import UncheckedValues, Unsupported
from anyjax.torch.core.dtypes import to_jax
from tests.tolerance import assert_close
from tests.torch.programs import KINDS, Run

pytestmark = pytest.mark.sample(every=4)

X = np.round(np.random.default_rng(0).standard_normal((3, 4)) * 4).astype(np.float32) / 4
Y = np.round(np.random.default_rng(1).standard_normal((2, 2, 3)) * 4).astype(np.float32) / 4
Z = (X[:2] + 1j * X[1:]).astype(np.complex64)
N = (X * 4).astype(np.int32)  # torch's int64
B = Y > 0
SMALL = st.integers(0, 11)


def programs(kinds):
    line = st.tuples(st.sampled_from(kinds), SMALL, SMALL, SMALL, SMALL)
    return st.lists(line, min_size=1, max_size=12)


PROGRAMS = programs(KINDS)
# torch's gradient of as_strided leaves out what the tensor's own strides do not reach.
TRACKED = programs([kind for kind in KINDS if kind != "as_strided"])
SEARCH = dict(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def start(x, y, z):
    """Tensors of the program's own; the third is no input."""
    return x * 1, y + 0, constant(), z * 1, (x * 4).long(), y > 0


def constant():
    return torch.arange(6.0).reshape(2, 3)


# torch's own words where functionalization cannot follow a write through a view.
REFUSALS = ("encountered a mutation on a view chain", "tensor being mutated that has internal")


def unless_refused(run, *args):
    """The result, None where the program is refused."""
    try:
        return run(*args)
    except Unsupported as error:
        event(f"refused: {error.what}")
    except RuntimeError as error:
        if not any(words in str(error) for words in REFUSALS):
            raise
        event("refused by functionalization")
    return None


def assert_same_values(program):
    """Every tensor at the end, those of the caller included, is what torch has."""
    plan = Run(program)
    want = plan(*map(torch.tensor, (X, Y, Z)), torch.tensor(N).long(), torch.tensor(B), constant())
    model = anyjax.from_torch(lambda *xs: Run(program, plan.log)(*xs, constant()))
    run = jax.jit(lambda *xs: model.apply({}, *xs))
    if (got := unless_refused(run, X, Y, Z, N.astype(np.int64), B)) is not None:
        assert [x.dtype for x in got] == [to_jax(x.dtype) for x in want]
        assert_close(got, want, reduction=16)


def loss_of(outs, cos):
    """A number that every element of every tensor counts in, differently."""
    total = 0.0
    for t in outs:
        real = [t.real, t.imag] if np.dtype(str(t.dtype).split(".")[-1]).kind == "c" else [t]
        for part in real:
            size = int(np.prod(part.shape))
            total = total + (part.reshape(-1) * cos(np.arange(size, dtype=np.float32))).sum()
    return total


def assert_same_gradients(program):
    """The gradient of all tensors with respect to the inputs, where torch has one."""
    plan = Run(program)
    inputs = [torch.tensor(v, requires_grad=True) for v in (X, Y, Z)]
    outs = plan(*start(*inputs))
    try:
        loss = loss_of(outs, lambda n: torch.cos(torch.tensor(n)))
        want = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
    except RuntimeError as error:
        event(f"torch has no gradient: {str(error)[:50]}")
        return
    model = anyjax.from_torch(lambda *xs: Run(program, plan.log)(*start(*xs)))
    run = jax.jit(jax.grad(lambda xs: loss_of(model.apply({}, *xs), jnp.cos)))
    if (got := unless_refused(run, (X, Y, Z))) is not None:
        got = (*got[:2], got[2].conj())  # torch's gradient of a complex number is the conjugate
        assert_close(got, tuple(want), reduction=200)


@settings(max_examples=60, **SEARCH)
@given(PROGRAMS)
def test_values(program):
    assert_same_values(program)


@settings(max_examples=60, **SEARCH)
@given(TRACKED)
def test_gradients(program):
    assert_same_gradients(program)


@pytest.mark.conformance
@settings(max_examples=4000, **SEARCH)
@given(PROGRAMS)
def test_values_of_many(program):
    assert_same_values(program)


@pytest.mark.conformance
@settings(max_examples=4000, **SEARCH)
@given(TRACKED)
def test_gradients_of_many(program):
    assert_same_gradients(program)


def detached(y):
    y.detach()[0] = 5


def data(y):
    y.data.clamp_(max=1)


def view_of_detached(y):
    y.detach().view(-1)[2:].mul_(3)


def part_of_detached(y):
    y.detach().split(2, 1)[1].mul_(3)


def view_in_no_grad(y):
    with torch.no_grad():
        flat = y.view(-1)
        flat[2:].mul_(3)


def out_in_no_grad(y):
    with torch.no_grad():
        torch.add(y, 2, out=y)


def scatter_in_no_grad(y):
    with torch.no_grad():
        y.scatter_(0, torch.zeros(1, 4, dtype=torch.int64), y[1:2].clone())


UNSEEN = [detached, data, view_of_detached, part_of_detached, view_in_no_grad]


def square_in_no_grad(y):
    with torch.no_grad():
        flat = y.view(-1)
        flat.square_()
        flat.put_(torch.tensor([1]), torch.tensor([5.0]))


UNSEEN += [out_in_no_grad, scatter_in_no_grad, square_in_no_grad]


@pytest.mark.parametrize("write", UNSEEN, ids=lambda f: f.__name__)
def test_writes_that_autograd_does_not_see(write):
    def function(x):
        y = x * 2
        write(y)
        return (y * x).sum(), y

    x = torch.tensor(X, requires_grad=True)
    try:
        function(x)[0].backward()
    except RuntimeError:  # torch counts writes through detach, and refuses
        x = None
    _, y = function(torch.tensor(X))
    model = anyjax.from_torch(function)
    grad, got = jax.grad(lambda x: model.apply({}, x), has_aux=True)(X)
    assert_close(got, y)
    assert_close(grad, y + 2 * X if x is None else x.grad)


def test_a_view_made_in_no_grad_has_no_gradient():
    def function(x):
        y = x * 1
        y.mul_(3)
        with torch.no_grad():
            flat = y.view(-1)
        return flat.sum() + flat[1:].sum() + y.sum()

    grad = jax.grad(lambda x: anyjax.from_torch(function).apply({}, x))(X)
    assert_close(grad, np.full_like(X, 3))


def test_unfold_is_written_to_only_where_it_holds_every_element_once():
    def function(x, size):
        y = x * 1
        y.unfold(0, size, 2).zero_()
        return y

    model = anyjax.from_torch(function)
    assert_close(model(np.ones(6, np.float32), 2), np.zeros(6, np.float32))
    with pytest.raises(Unsupported, match="writing through unfold"):
        model(np.ones(6, np.float32), 1)


@pytest.mark.parametrize("shape", [(3, 3), (3, 5), (7, 3), (2, 2, 2)])
@pytest.mark.parametrize("wrap", [False, True])
def test_fill_diagonal(shape, wrap):
    x = np.zeros(shape, np.float32)
    function = lambda t: t.clone().fill_diagonal_(1.5, wrap)
    assert_close(anyjax.from_torch(function)(x), function(torch.tensor(x)))


def test_constants_of_the_forward_are_written_to_and_viewed():
    def function(x):
        table = torch.arange(6.0)
        table[1:] = 8
        turned = table.view(2, 3).t()
        turned.mul_(2)
        return table + 0, turned.reshape(-1) + x

    want = function(torch.tensor(1.0))
    assert_close(anyjax.from_torch(function)(np.float32(1)), want)


def test_bitwise_operators_in_place():
    def function(x, mask):
        row = x[1]
        row &= 14
        row |= 16
        row ^= x[0]
        row <<= 3
        row >>= 1
        mask &= x[0] > 2
        mask |= x[1] == 0
        mask ^= True
        return x * 1, ~mask

    want = function(torch.arange(12).reshape(2, 6), torch.tensor([True, True, False] * 2))
    model = anyjax.from_torch(function)
    jitted = jax.jit(lambda *xs: model.apply({}, *xs))
    with pytest.warns(UncheckedValues, match="bitwise_left_shift"):  # of inputs that may be large
        got = jitted(np.arange(12).reshape(2, 6), np.array([True, True, False] * 2))
    assert_close(got, want)
