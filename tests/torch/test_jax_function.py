"""JAX functions in torch: values, gradients of all kinds, transformations, memory."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.func import grad, hessian, jacrev, jvp, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

import anyjax
from anyjax.errors import ManyCompilations, Unsupported
from anyjax.torch import from_jax
from tests.tolerance import assert_close

torch.manual_seed(0)
X, W = torch.randn(4, 3), torch.randn(3, 5)


def layer(x, w):
    """A function of two arrays with a pytree as its result."""
    y = jnp.tanh(x @ w)
    return {"y": y, "norms": (jnp.sqrt((y**2).sum(0)), y.argmax(1))}


def torch_layer(x, w):
    y = torch.tanh(x @ w)
    return {"y": y, "norms": (torch.sqrt((y**2).sum(0)), y.argmax(1))}


def scalar(x, w):
    return jnp.sin(x @ w).sum() ** 2


def torch_scalar(x, w):
    return torch.sin(x @ w).sum() ** 2


def close(a, b, **options):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, check_dtype=False, **options)


def test_values_in_any_pytree():
    out, expected = from_jax(layer)(X, W), torch_layer(X, W)
    close(out["y"], expected["y"])
    close(out["norms"][0], expected["norms"][0])
    assert torch.equal(out["norms"][1], expected["norms"][1].int())


def test_arguments_that_are_no_tensors():
    function = from_jax(lambda x, *, scale, shift=None: x * scale + (0 if shift is None else shift))
    close(function(X, scale=2), X * 2)
    close(function(X, scale=3.0, shift=W[0, 0]), X * 3 + W[0, 0])
    assert from_jax(lambda x: {"x": x, "name": "a"})(X)["name"] == "a"
    assert from_jax(lambda n: n + 1)(2) == 3


def test_gradients_and_gradients_of_gradients():
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    out = from_jax(layer)(x, w)
    (out["y"].sum() + out["norms"][0].prod()).backward()
    y, v = X.clone().requires_grad_(), W.clone().requires_grad_()
    expected = torch_layer(y, v)
    (expected["y"].sum() + expected["norms"][0].prod()).backward()
    close(x.grad, y.grad)
    close(w.grad, v.grad)
    assert not out["norms"][1].requires_grad

    def second(function):
        x = X.clone().requires_grad_()
        (first,) = torch.autograd.grad(function(x, W), x, create_graph=True)
        return torch.autograd.grad((first**2).sum(), x)[0]

    close(second(from_jax(scalar)), second(torch_scalar))


def test_gradcheck():
    jax.config.update("jax_enable_x64", True)
    try:
        x, w = (t.double().requires_grad_() for t in (X, W))
        assert torch.autograd.gradcheck(from_jax(scalar), (x, w))
        assert torch.autograd.gradgradcheck(from_jax(scalar), (x, w))
    finally:
        jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: grad(f)(X, W),
        lambda f: grad(f, argnums=1)(X, W),
        lambda f: vjp(f, X, W)[1](torch.tensor(2.0)),
        lambda f: jvp(f, (X, W), (torch.ones_like(X), torch.ones_like(W))),
        lambda f: vmap(f, (0, None))(X, W),
        lambda f: vmap(grad(f), (0, None))(X, W),
        lambda f: vmap(f, (1, 0))(X, torch.ones(3, 4)),
        lambda f: jacrev(lambda x: f(x, W))(X),
        lambda f: hessian(lambda x: f(x, W))(X),
    ],
)
def test_transformations(transform):
    close(transform(from_jax(scalar)), transform(torch_scalar))


def test_an_optimizer_of_torch_trains_through_it():
    w = torch.nn.Parameter(W.clone())
    optimizer = torch.optim.Adam([w], 0.05)
    loss = from_jax(lambda x, w: ((x @ w - 1) ** 2).mean())
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(X, w)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert losses[-1] < losses[0] / 3


def test_compiled_once_for_the_same_shapes():
    traces = []

    def function(x, n):
        traces.append(x.shape)
        return x * n

    called = from_jax(function)
    called(X, 2)
    count = len(traces)
    called(X + 1, 2)
    assert len(traces) == count
    called(X[:2], 2)
    called(X, 3)
    assert {*traces} == {(4, 3), (2, 3)}


def test_memory_is_shared_and_results_are_nobody_elses():
    x = torch.randn(64, 64)
    array = anyjax.torch.core.interop.view_as_jax(x)
    assert array.unsafe_buffer_pointer() == x.data_ptr()
    back = anyjax.torch.core.interop.view_as_torch(jnp.ones((64, 64)) * 2)
    assert back.sum() == 2 * 64 * 64
    same, again = from_jax(lambda x: (x, x))(x)
    assert len({t.data_ptr() for t in (x, same, again)}) == 3
    same.add_(1)
    close(x, again)


def test_an_input_may_be_written_to_once_the_call_is_over():
    x = torch.ones(1500, 1500)
    out = from_jax(lambda x: jax.lax.fori_loop(0, 4, lambda i, y: y @ x / 1500, x))(x)
    x.zero_()
    close(out, torch.ones_like(x))


def test_nothing_is_kept_under_no_grad():
    x = X.clone().requires_grad_()
    with torch.no_grad():
        out = from_jax(scalar)(x, W)
    assert not out.requires_grad and out.grad_fn is None


def test_written_tensors_have_no_gradient():
    x = X.clone().requires_grad_()
    y = x * 1
    out = from_jax(scalar)(y, W)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


class Mixed(torch.nn.Module):
    """A torch model with a function of JAX in it."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 5)
        self.inner = from_jax(lambda x: jnp.sinh(x) * 2)

    def forward(self, x):
        return self.inner(self.linear(x)).relu()


def test_it_is_the_jax_function_again_in_a_converted_model():
    module = Mixed()
    model = anyjax.from_torch(module)
    jaxpr = jax.make_jaxpr(lambda p: model.apply(p, X.numpy()))(model.params)
    assert "sinh" in str(jaxpr) and "callback" not in str(jaxpr)
    close(torch.from_numpy(np.array(model(X.numpy()))), module(X))
    grads = jax.grad(lambda p: model.apply(p, X.numpy()).sum())(model.params)
    module(X).sum().backward()
    close(torch.from_numpy(np.array(grads["linear.weight"])), module.linear.weight.grad)


def test_what_is_refused():
    with pytest.raises(Unsupported, match="float64"):
        from_jax(jnp.sin)(X.double())
    with pytest.raises(Unsupported, match="on meta"):
        from_jax(jnp.sin)(X.to("meta"))
    close(from_jax(jnp.sin)(X.T), torch.sin(X.T))  # not contiguous: a copy
    assert torch.equal(from_jax(lambda x: x + 1)(torch.arange(3)), torch.arange(1, 4).int())
    assert from_jax(jnp.sin)(X.bfloat16()).dtype == torch.bfloat16


def test_tracers_do_not_become_tensors():
    sine = from_jax(jnp.sin)
    with pytest.raises(Unsupported, match=r"a tracer of JAX, float32\[\]"):
        jax.jit(lambda x: sine(x))(1.0)
    with pytest.raises(Unsupported, match="a tracer of JAX"):
        jax.jit(lambda x: from_jax(lambda y: x * y)(torch.ones(2)))(1.0)


def test_static_numbers_that_change_are_told_and_programs_dropped():
    scaled = from_jax(lambda x, factor: x * factor)
    with pytest.warns(ManyCompilations, match="such as 0.64 .*give as tensors"):
        for i in range(65):
            assert torch.allclose(scaled(X[:1, :1], i / 100), X[:1, :1] * (i / 100))


REAL = torch.linspace(-1, 1, 5)
COMPLEX = torch.complex(REAL, REAL.flip(0) * 2 + 0.5)
COMPLEX_FUNCTIONS = {
    "rfft": (torch.fft.rfft, jnp.fft.rfft, REAL),
    "fft": (torch.fft.fft, jnp.fft.fft, COMPLEX),
    "abs": (torch.abs, jnp.abs, COMPLEX),
    "conj": (lambda z: z * z.conj() * 1j, lambda z: z * z.conj() * 1j, COMPLEX),
}


@pytest.mark.parametrize("name", COMPLEX_FUNCTIONS)
def test_complex_gradients_are_torchs(name):
    *functions, x = COMPLEX_FUNCTIONS[name]

    def slopes(function):
        z = x.clone().requires_grad_()
        y = torch.view_as_real(function(z) + 0j)
        (g,) = torch.autograd.grad((y * torch.arange(1.0, 3.0)).sum(), z, create_graph=True)
        total = torch.view_as_real(g + 0j).pow(3).sum()
        again = torch.autograd.grad(total, z)[0] if total.requires_grad else torch.zeros_like(z)
        first = torch.func.grad(lambda z: torch.view_as_real(function(z) + 0j).pow(2).sum())
        return g, again, first(x), jvp(function, (x,), (x * 2,))[1]

    for got, want in zip(slopes(from_jax(functions[1])), slopes(functions[0]), strict=True):
        close(got, want)


FUNCTIONS = (lambda x: x.sin() * x[0], from_jax(lambda x: jnp.sin(x) * x[0]))


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")  # torch's linearize
def test_linearize_and_graphs_that_torch_records():
    x = REAL[1:].clone()
    pushed = [torch.func.linearize(f, x)[1] for f in FUNCTIONS]
    for tangent in (torch.ones(4), REAL[1:]):
        close(pushed[1](tangent), pushed[0](tangent))
    for mode in ("real", "fake"):
        graph = make_fx(FUNCTIONS[1], tracing_mode=mode)(torch.zeros(4))
        close(graph(x), FUNCTIONS[0](x))
    model = anyjax.from_torch(graph)
    close(torch.from_numpy(np.array(model(x.numpy()))), FUNCTIONS[0](x))


@pytest.mark.parametrize("reentrant", [False, True])
def test_inside_of_checkpoint(reentrant):
    slopes = []
    for function in FUNCTIONS:
        x = REAL.clone().requires_grad_()
        y = torch.utils.checkpoint.checkpoint(function, x, use_reentrant=reentrant)
        y.sum().backward()
        slopes.append(x.grad)
    close(*slopes)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo reads it
def test_compiled_code_around_it():
    slopes = []
    for function in FUNCTIONS:
        x = REAL.clone().requires_grad_()
        torch.compile(lambda x, f=function: f(x * 2) + 1, backend="aot_eager")(x).sum().backward()
        slopes.append(x.grad)
    close(*slopes)


def test_gradients_are_compiled_once():
    traced = []
    function = from_jax(lambda x: traced.append(0) or jnp.sin(x))
    for _ in range(3):
        grad(lambda x: function(x).sum())(X)
        jvp(function, (X,), (X,))
    assert len(traced) < 8


class Options:
    def __init__(self, **options):
        self.__dict__.update(options)


def test_arguments_that_change_in_place():
    function = anyjax.torch.from_jax(lambda x, scale, options: x * scale * options.factors["a"])
    x, scale, options = torch.ones(1), np.ones(1, np.float32), Options(factors={"a": 2.0})
    assert function(x, scale, options).tolist() == [2]
    scale[:] = 5
    assert function(x, scale, options).tolist() == [10]
    options.factors["a"] = 3.0
    assert function(x, scale, options).tolist() == [15]
    assert function(torch.ones(2), scale, options).tolist() == [15, 15]


@pytest.mark.parametrize("backend", ["anyjax", "eager"])
def test_under_torch_compile(backend):
    cosine = anyjax.torch.from_jax(jnp.cos)
    x = torch.ones(2)
    assert_close(torch.compile(cosine, backend=backend)(x), torch.cos(x))
    assert_close(torch.compile(lambda x: cosine(2 * x) + 1, backend=backend)(x), cosine(2 * x) + 1)
