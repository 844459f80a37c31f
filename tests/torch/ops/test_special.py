import jax
import numpy as np
import pytest
import torch
from scipy.special import airy

import anyjax
from tests.tolerance import assert_close
from tests.torch.beside_torch import assert_same_gradients, assert_same_values, gradients

pytestmark = pytest.mark.sample(every=8)

RNG = np.random.default_rng(0)
FUNCTIONS = {
    "polygamma": lambda x: torch.polygamma(1, x),
    "zeta": lambda x: torch.special.zeta(2.5, x),
    "elu": torch.nn.functional.elu,
    "celu": lambda x: torch.celu(x, 0.5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_mode_is_reverse_mode(name):
    function = FUNCTIONS[name]
    x = np.array([0.3, 2.0, 9.0] if name in ("polygamma", "zeta") else [-9.4, -1.0, 3.0])
    given = torch.tensor(x, dtype=torch.float32, requires_grad=True)
    (want,) = torch.autograd.grad(function(given).sum(), given)
    model, x = anyjax.from_torch(function), x.astype(np.float32)
    _, got = jax.jvp(lambda x: model.apply({}, x), (x,), (np.ones_like(x),))
    assert_close(got / want.numpy(), np.ones(3, np.float32), reduction=16)


def test_airy_where_torch_is_off():
    """torch's expansion for negative arguments is off by 2.8e-6 where it begins, in float64 too."""
    x = np.linspace(-2.5, -1.5, 65, dtype=np.float32)
    assert_close(anyjax.from_torch(torch.special.airy_ai)(x), airy(x)[0], reduction=4)


ENDS = {
    "entr": (torch.special.entr, [0, 0.5, 1, 2, np.inf, -np.inf, np.nan]),
    "logit": (torch.special.logit, [0, 1, 0.25, 0.5, 1e-30, -1, 2]),
}


@pytest.mark.parametrize("name", ENDS)
def test_values_and_gradients_at_the_ends(name):
    function, x = ENDS[name]
    for one in np.array(x, np.float32).reshape(-1, 1):
        assert_same_values(function, one, reduction=4)
        if name != "entr" or one >= 0:  # below 0 it is -inf, and torch gives NaN
            assert_same_gradients(function, one, reduction=4)


SUMS = {
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_exponentials_at_infinity(name):
    """Of two equal infinities, where torch has NaN, each gets half."""
    ends = np.array([np.inf, -np.inf, 0, 1, -2, 500, -500], np.float32)
    x, y = (v.ravel() for v in np.meshgrid(ends, ends))
    assert_same_values(SUMS[name], x, y, reduction=4)
    got, want = gradients(SUMS[name], x, y)
    equal = (x == y) & np.isinf(x)
    for a, b in zip(got, want):
        assert np.isnan(b[equal]).all()
        half = np.cos(np.arange(x.size, dtype=np.float32)) / 2
        assert_close(a, np.where(equal, half, b), reduction=4)


def test_running_sums_of_exponentials():
    """torch's gradient next to infinities is NaN; here it is that of each logsumexp."""
    running = lambda x: x.logcumsumexp(1)
    rows = RNG.standard_normal((3, 5)).astype(np.float32)
    assert_same_values(running, rows, reduction=16)
    assert_same_gradients(running, rows, reduction=16)
    far = np.array([[30, 0, 30, -30, 3]], np.float32)
    assert_same_values(running, far, reduction=16)
    assert_same_gradients(running, far, reduction=16)
    ends = np.array([[-np.inf, 1, 2, 0], [1, np.inf, 2, 0], [0, -np.inf, 1, 1]], np.float32)
    assert_same_values(running, ends, reduction=16)
    each = lambda x: torch.stack([x[:, :i].logsumexp(1) for i in range(1, 5)], 1)
    got = gradients(running, ends)[0]
    finite = np.nan_to_num(gradients(each, np.clip(ends, -300, 300))[1][0])
    assert_close(got[0], finite, reduction=64)


LOGARITHMS = {
    "xlogy": torch.xlogy,
    "xlog1py": torch.special.xlog1py,
    "entr": lambda x, y: torch.special.entr(x) + y,
    "of itself": lambda x, y: torch.xlogy(x, x) + y,
    "kl_div": lambda x, y: torch.nn.functional.kl_div(x, y, reduction="none"),
    "a number": lambda x, y: torch.xlogy(x, 2.5) + torch.xlogy(0, y) + torch.xlogy(2, y),
}


@pytest.mark.parametrize("name", LOGARITHMS)
def test_gradients_of_products_with_logarithms(name):
    """The value at 0 is 0, which does not make the gradient 0."""
    ends = np.array([0, -0.0, 1, -1, 0.5, 2, -3], np.float32)
    x, y = (v.ravel() for v in np.meshgrid(ends, ends))
    assert_same_gradients(LOGARITHMS[name], x, y, reduction=4)
    assert_same_values(LOGARITHMS[name], x, y, reduction=4)


@pytest.mark.parametrize("name", ["special.ndtri", "lgamma", "erfinv", "logit", "special.entr"])
def test_infinite_gradients(name):
    """Where a value is infinite its gradient is not 0, and no NaN if it has a limit."""
    function = getattr(torch.special, name.rpartition(".")[2], None) or getattr(torch, name)
    assert_same_gradients(function, np.array([0, 0.25, 0.5, 1], np.float32), reduction=16)
