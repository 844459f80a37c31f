"""``return`` in branches and loops that values decide."""

import ast
import types

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.torch.data_dependent import rewriting, statements
from tests.tolerance import assert_close

X = np.array([0.5, -2.0, 1.0], np.float32)


def early(x):
    if x.sum() > 0:
        return x * 2
    y = x + 1
    if y.sum() > 2:
        return y
    elif y[0] > 0:
        z = y * 3
    else:
        z = y * 4
        if z.sum() < -20:
            return z - 1
    return z + x


def from_a_loop(x):
    for i in range(5):
        x = x * 2
        if x.abs().sum() > 30:
            return x + i
        if x[0] > 8:
            return x - i
    return x - 1


def endless(x):
    while True:
        x = x * 1.5
        if x.abs().sum() > 10:
            return x


def nothing(x):
    if x.sum() > 0:
        x = x + 1
        if x.sum() > 4:
            return x, True
        x = x * 3
    with torch.no_grad():
        scale = x.abs().max()
    if x.sum() < -8:
        return x, True
    return x / scale, True


def with_jitter(x):
    """As gpytorch does: more and more is added until there is a factor."""
    matrix = torch.outer(x, x)
    factor, info = torch.linalg.cholesky_ex(matrix)
    if not torch.any(info):
        return factor
    before, matrix = 0.0, matrix.clone()
    for i in range(4):
        jitter = 1e-3 * 20.0**i
        matrix.diagonal().add_(jitter - before)
        before = jitter
        factor, info = torch.linalg.cholesky_ex(matrix - 0.05 * torch.eye(3))
        if not torch.any(info):
            return factor
    raise ValueError("no factor")


FUNCTIONS = [early, from_a_loop, endless, nothing, with_jitter]


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Ways join from the first condition on."""
    monkeypatch.setattr(statements, "FEW", 0)


@pytest.mark.parametrize("scale", [1, -1, 4, -6, 0.1])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_and_gradients(function, scale):
    x = X * np.float32(scale)
    leaf = torch.tensor(x).requires_grad_()
    out = function(leaf)
    out = out if isinstance(out, torch.Tensor) else out[0]
    out.sum().backward()

    def loss(x):
        new = anyjax.from_torch(function).apply({}, x)
        new = new if isinstance(new, jax.Array) else new[0]
        return new.sum(), new

    slope, new = jax.jit(jax.grad(loss, has_aux=True))(x)
    assert_close(new, out.detach().numpy(), reduction=100)
    assert_close(slope, leaf.grad.numpy(), reduction=5000)


def test_a_way_that_raises_has_no_number():
    apply = jax.jit(anyjax.from_torch(with_jitter).apply)
    assert np.isnan(apply({}, X * np.float32(np.nan))).all()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_same_results_outside_of_programs(function):
    tree = rewriting.function_of(function.__code__)
    nodes = rewriting.nodes_of(tree.body)  # no `if` of a loop, which leaves it
    kinds = ast.If, ast.For, ast.While
    chosen = frozenset(x.lineno for x in nodes if isinstance(x, kinds))
    code = rewriting.rewritten(function.__code__, chosen)
    new = types.FunctionType(code, function.__globals__)
    for scale in (1, -1, 4):
        x = torch.tensor(X * scale)
        want, got = (f(x) if f is not None else None for f in (function, new))
        assert str(want) == str(got)
