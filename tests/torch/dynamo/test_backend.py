"""torch.compile with this backend beside eager torch: values, gradients, writes, memory, counts."""

from __future__ import annotations

import gc
import tomllib
import weakref
from importlib.metadata import EntryPoint
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn
from torch._dynamo.backends import registry
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.utils import counters
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import anyjax
from anyjax.errors import MissingOps, TorchCallback, Unsupported
from anyjax.torch import compile_backend
from anyjax.torch.core import current_trace
from anyjax.torch.dynamo.program import to_numpy
from tests.tolerance import assert_close

ROOT = Path(__file__).parents[3]


def compiled(function, **options):
    return torch.compile(function, backend=compile_backend, fullgraph=True, **options)


def tensors_in(tree):
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]


def assert_same(function, *args, reduction=1, **options):
    """Results, their dtypes and strides, gradients, and what became of the arguments."""
    other = [x.detach().clone().requires_grad_(x.requires_grad) for x in args]
    got, want = compiled(function, **options)(*args), function(*other)
    assert [type(x) for x in tree_leaves(got)] == [type(x) for x in tree_leaves(want)]
    form = lambda tree: [(x.dtype, x.stride() if x.numel() else 0) for x in tensors_in(tree)]
    assert form(got) == form(want)
    assert_close(tree_leaves(got), tree_leaves(want), reduction=reduction)
    if any(x.requires_grad for x in args):
        for out in (got, want):
            sum(x.abs().square().sum() for x in tensors_in(out) if x.requires_grad).backward()
        gradients = [[x.grad for x in xs if x.requires_grad] for xs in (args, other)]
        assert_close(*gradients, reduction=reduction)
    assert_close(list(args), other)


def split_base(x):
    """Results that are views of one another, in another order than memory's."""
    y = x.exp().permute(1, 0, 2)
    return y, y[1], y.transpose(0, 2)


def write(x, y):
    x.add_(1)
    y[0] = 5
    return x * 2


def write_part(x, y):
    x[1:].mul_(2)
    return x.sum() + y


X = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
CASES = {
    "integers": (lambda x: (x * 2**40, x.argmax(), x.sum(), x > 1), torch.arange(5)),
    "float64": (lambda x: (x.exp(), x.sum()), X.double()),
    "bfloat16": (lambda x: x.relu() * 2, X.bfloat16()),
    "complex": (lambda x: (x * 1j, torch.fft.fft(x)), X.to(torch.complex64)),
    "no tensors": (lambda x: (x + 1, None, 3, x.shape[0]), X),
    "views of inputs": (lambda x: (x, x.mT, x[1:], x + 1), X),
    "views of results": (split_base, X),
    "orders of memory": (lambda x: (x.exp().mT, x.exp()[:, 1:], x.sin().expand(2, 3, 4, 5)), X),
    "twice the same": (lambda x: (y := x.exp(), y), X),
    "constants": (lambda x: x + torch.tensor([1.0, 2, 3, 4, 5]) + torch.arange(5), X),
    "empty": (lambda x: (x * 2, x.sum(), torch.cat([x, x])), X[:0]),
    "writes": (write, X, X + 1),
    "writes to a view": (write_part, X, X[0, 0, 0]),
    "branches": (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), X),
    "factors": (lambda x: torch.linalg.det(x[:, :3, :3]), X + 3 * torch.eye(4, 5)),
}
DIFFERENTIABLE = {*CASES} - {"integers", "writes", "writes to a view"}


@pytest.mark.parametrize("name", CASES)
def test_results(name):
    function, *args = CASES[name]
    assert_same(function, *(x.clone() for x in args), reduction=60)


@pytest.mark.parametrize("name", sorted(DIFFERENTIABLE))
def test_gradients(name):
    function, *args = CASES[name]
    assert_same(function, *(x.clone().requires_grad_() for x in args), reduction=60)


def test_writes_to_results_reach_no_input_and_no_later_call():
    function = compiled(lambda x: (x.clone(), x + 0, torch.ones(3)))
    x = X.clone()
    for result in function(x):
        result.add_(5)
    assert torch.equal(x, X)
    assert [r.sum().item() for r in function(torch.ones(2))] == [2, 2, 3]


def test_weights_are_arguments():
    layer = nn.Linear(5, 2)
    function, x = compiled(layer), X[0]
    before = function(x)
    with torch.no_grad():
        layer.weight.mul_(2)
    assert_close(function(x), layer(x), reduction=5)
    assert not torch.equal(before, function(x))
    assert counters["anyjax"]["programs"] == 1


def test_dropout_draws_anew_and_repeats_with_the_seed():
    function, x = compiled(lambda x: F.dropout(x, 0.5)), torch.ones(64, requires_grad=True)
    torch.manual_seed(1)
    first, second = function(x), function(x)
    torch.manual_seed(1)
    again = function(x)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    first.sum().backward()
    assert torch.equal(x.grad, first)  # the mask of the forward pass
    assert {*first.tolist()} == {0, 2}


def test_what_is_run_again_in_the_backward_pass_draws_the_same():
    w = torch.randn(8, 8, requires_grad=True)

    def block(x):
        return F.dropout(x.sin(), 0.5).cos()

    function = compiled(lambda x, w: checkpoint(block, x @ w, use_reentrant=False).sum())
    x, direction = torch.randn(8, 8), torch.randn(8, 8)

    def at(step):
        torch.manual_seed(0)
        return function(x, (w.detach() + step * direction).requires_grad_()).item()

    torch.manual_seed(0)
    function(x, w).backward()
    slope = (at(1e-3) - at(-1e-3)) / 2e-3
    assert_close((w.grad * direction).sum().item(), slope, rtol=1e-2)


def test_autocast_around():
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(lambda x: x @ x.mT, X[0])


def test_batch_norm_keeps_its_statistics():
    norms = [nn.BatchNorm1d(4) for _ in range(2)]
    function = compiled(norms[0])
    for _ in range(2):
        assert_close(function(X), norms[1](X), reduction=15)
    assert_close(dict(norms[0].state_dict()), dict(norms[1].state_dict()), reduction=15)
    assert norms[0].num_batches_tracked.item() == 2


def test_graph_breaks():
    def function(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y[y > 0].sum()

    x = X.clone()
    assert_close(torch.compile(function, backend=compile_backend)(x), function(x), reduction=60)
    assert counters["anyjax"]["graphs"] > 1


def test_a_program_for_each_size():
    function = compiled(
        lambda x: (x * x.shape[0]).softmax(0).mean(1), dynamic=True, options={"buckets": False}
    )
    for size in (4, 5, 6, 4):
        x = torch.randn(size, 3)
        assert_close(function(x), (x * size).softmax(0).mean(1), reduction=size)
    assert counters["anyjax"] == {"graphs": 1, "programs": 3}


def test_dynamic_sizes_have_gradients():
    layer = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    function = compiled(layer, dynamic=True)
    for size in (4, 5):
        x = torch.randn(size, 3, requires_grad=True)
        (want,) = torch.autograd.grad(layer(x).square().sum(), x)
        function(x).square().sum().backward()
        assert_close(x.grad, want, reduction=8)
    assert counters["anyjax"]["programs"] == 4  # forward and backward, twice


def test_programs_of_most_sizes_are_dropped():
    function = compiled(lambda x: x + 1, dynamic=True, options={"max_programs": 2})
    for size in (4, 6, 4, 8, 4, 6):  # 8 takes the place of 6, which was used before 4
        function(torch.ones(size))
    assert counters["anyjax"]["programs"] == 4


def test_sizes_are_results():
    function = compiled(lambda x: (x.shape[0] * 2 + 1, x + 1), dynamic=True)
    assert [function(torch.ones(n))[0] for n in (3, 4)] == [7, 9]


torch.library.define("compiled_tests::odd", "(Tensor x) -> Tensor")
torch.library.impl("compiled_tests::odd", "CPU", lambda x: torch.from_numpy(np.cos(x.numpy())))
torch.library.register_fake("compiled_tests::odd", torch.empty_like)


def test_an_operator_without_a_lowering():
    with pytest.raises(MissingOps, match=r"compiled_tests.odd(.|\n)*test_backend.py") as caught:
        compiled(lambda x: torch.ops.compiled_tests.odd(x))(torch.ones(2))
    assert caught.value.ops == ("compiled_tests.odd.default",)


def test_torch_may_compute_what_has_no_lowering():
    x = torch.randn(3, 2)
    with pytest.warns(TorchCallback, match="compiled_tests.odd"):
        function = compiled(
            lambda x: torch.ops.compiled_tests.odd(x), options={"on_missing": "callback"}
        )
        assert_close(function(x), torch.cos(x))


@pytest.mark.parametrize("reduce", ["max", "mean", "prod"])
def test_gradients_that_only_torch_has_an_operator_for(reduce):
    function = lambda x: torch.segment_reduce(x, reduce, lengths=torch.tensor([2, 1])).sum()
    x, y = torch.randn(3, 2).requires_grad_(), torch.empty(3, 2, requires_grad=True)
    y.data.copy_(x.detach())
    compiled(function)(x).backward()
    function(y).backward()
    assert_close(x.grad, y.grad)


@pytest.mark.parametrize("options", [{"mode": "max-autotune"}, {"options": {"fast": 1}}])
def test_modes_and_options_that_there_are_not(options):
    with pytest.raises(BackendCompilerFailed, match="precision, on_missing, max_programs"):
        compiled(torch.sin, **options)(X)


def test_tensors_elsewhere_are_refused():
    with pytest.raises(Unsupported, match="on meta"):
        to_numpy(torch.empty(2, device="meta"))


def test_nothing_stays_behind():
    layer, x = nn.Linear(5, 2), X[0].clone()
    x64 = jax.config.read("jax_enable_x64")
    compiled(layer)(x).sum().backward()
    assert jax.config.read("jax_enable_x64") == x64
    assert not current_trace.active()
    assert torch.equal(torch.sin(x).exp(), torch.exp(x.sin()))
    alive = [weakref.ref(v) for v in (layer.weight, x)]
    torch._dynamo.reset()
    del layer, x
    gc.collect()
    assert [r() for r in alive] == [None, None]


def test_the_entry_point_names_the_backend(monkeypatch):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    group = "torch_dynamo_backends"
    ((name, value),) = project["entry-points"][group].items()
    entry = EntryPoint(name, value, group)
    assert name == "anyjax"
    assert entry.load() is compile_backend
    registry.list_backends()  # all that is installed
    monkeypatch.setitem(registry._BACKENDS, name, entry)
    monkeypatch.delitem(registry._COMPILER_FNS, name, raising=False)
    try:
        assert_close(torch.compile(torch.sin, backend="anyjax")(X), X.sin())
        assert counters["anyjax"]["graphs"] == 1
    finally:
        registry._COMPILER_FNS.pop(name, None)


def graph_break():
    print(end="")


def of_a_result(x):
    h = x * 2
    row = h[0]
    graph_break()
    row.add_(1)
    return h


def of_what_is_no_result(x):
    h = x * 2
    row, turned = h[0], h.t()
    del h
    graph_break()
    row.add_(1)
    return turned


def of_a_list(x):
    h = x * 2
    first, second = h.chunk(2)
    graph_break()
    first.add_(1)
    second.mul_(3)
    return h


def of_an_input(x):
    row, turned = x[0], x.t()
    graph_break()
    row.add_(1)
    return turned * 1, x


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [of_a_result, of_what_is_no_result, of_a_list, of_an_input])
def test_results_that_are_views_stay_views(function, dynamic):
    x = torch.arange(16.0).reshape(4, 4)
    with torch.no_grad():
        want = function(x.clone())
        got = torch.compile(function, backend="anyjax", dynamic=dynamic)(x.clone())
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    "function",
    [
        lambda model, x: model(x * 2) + 1,
        lambda model, x: model.apply(model.params, x.sin()),
        lambda model, x: jax.numpy.sum(model(x.cos())) * 2,
        lambda model, x: anyjax.from_torch(nn.Tanh())(x.cos()),
    ],
    ids=["called", "applied", "in jax", "made"],
)
def test_a_model_ends_the_graph(function):
    model, x = anyjax.from_torch(nn.Linear(3, 2)), torch.randn(2, 3)
    # JAX arrays come out, as from the function as it is written.
    got = torch.compile(lambda x: function(model, x), backend="anyjax")(x)
    np.testing.assert_allclose(got, function(model, x), rtol=1e-6)
    assert isinstance(got, jax.Array)
