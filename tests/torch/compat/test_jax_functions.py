"""JAX's functions inside a torch model: they compute and print numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import Unsupported

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


class Mixed(torch.nn.Module):
    """Hands a tensor to JAX, and what comes back to torch."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        x = self.linear(x)
        y = jnp.sinh(jnp.asarray(x)) + 1
        jax.debug.print("sum {s} of {x}", s=jnp.sum(y), x=x)
        y = x * y + y / 2
        return jnp.exp(y), {"pair": jnp.stack([y, y]), "torch": torch.sin(x)}


def torch_values(module, x):
    x = module.linear(torch.from_numpy(x))
    y = torch.sinh(x) + 1
    y = x * y + y / 2
    return torch.exp(y), torch.stack([y, y]), torch.sinh(x) + 1, x


def test_values_gradients_and_prints(capfd):
    module = Mixed()
    model = anyjax.from_torch(module)
    expected, stacked, inner, x = torch_values(module, X)
    out, values = jax.jit(model.apply)(model.params, X)
    jax.effects_barrier()
    np.testing.assert_allclose(out, expected.detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(values["pair"], stacked.detach(), rtol=1e-5)
    printed = capfd.readouterr().out
    assert printed.startswith("sum ") and f"{x[0, 0].item():.4}"[:5] in printed
    assert float(printed.split()[1]) == pytest.approx(inner.sum().item(), rel=1e-4)
    grads = jax.grad(lambda p: model.apply(p, X)[0].sum())(model.params)
    expected.sum().backward()
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(grads[name], parameter.grad, rtol=1e-4, atol=1e-5)


def test_callbacks_and_lax():
    values = []

    def forward(x):
        jax.debug.callback(lambda y: values.append(float(y.sum())), x * 2)
        return jnp.exp(jax.lax.cummax(jax.nn.softmax(jnp.asarray(x), -1), 1))

    out = anyjax.from_torch(forward)(X)
    jax.effects_barrier()
    assert values == [pytest.approx(float(X.sum() * 2), rel=1e-5)]
    expected = torch.exp(torch.softmax(torch.from_numpy(X), -1).cummax(1).values)
    np.testing.assert_allclose(out, expected, rtol=1e-6)


def test_tensors_are_torchs_own_afterwards():
    anyjax.from_torch(Mixed())(X)
    assert not hasattr(torch.Tensor, "__jax_array__")
    with pytest.raises(TypeError):
        torch.relu(jnp.ones(3))


def test_a_jitted_function_of_jax_says_how():
    with pytest.raises(Unsupported, match=r"jnp.asarray\(x\)") as caught:
        anyjax.from_torch(lambda x: jnp.sinh(x))(X)
    assert "test_jax_functions.py" in caught.value.where


def test_torchs_function_of_an_array_says_how():
    with pytest.raises(Unsupported, match="wrap what made it"):
        anyjax.from_torch(lambda x: torch.relu(jnp.sin(jnp.asarray(x))))(X)


def test_an_error_of_a_function_stays_its_own():
    with pytest.raises(TypeError, match="relu"):
        anyjax.from_torch(lambda x: torch.relu(x, "no such argument"))(X)
