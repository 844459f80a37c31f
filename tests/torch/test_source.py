"""Modules as sources: weights, tied weights, buffers, attributes, modes, functions."""

import contextlib
import functools
import pickle
import threading
from typing import TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import Unsupported, WrongArguments
from anyjax.torch.core.interop import to_jax, to_torch
from tests.models.modules import Tied
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


class Counter(torch.nn.Module):
    """Writes a buffer, replaces a buffer, leaves attributes and appends to a list."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("last", torch.zeros(4, 3), persistent=False)
        self.log = []
        self.scale = torch.tensor(2.0)

    def forward(self, x):
        self.calls += 1
        self.last = x * self.scale
        self.log.append(x)
        self.kept = x.sum()
        return self.last + self.calls


def test_tied_weights_are_one_leaf():
    module = Tied()
    model = anyjax.from_torch(module)
    assert list(model.params) == ["embed.weight"]
    ids = np.array([[0, 4, 2]])
    assert_close(model(ids), module(torch.from_numpy(ids)), reduction=3)
    grads = jax.grad(lambda p: model.apply(p, ids).sum())(model.params)
    module(torch.from_numpy(ids)).sum().backward()
    assert_close(grads["embed.weight"], module.embed.weight.grad, reduction=15)


def test_writes_come_back_as_state_and_the_module_stays():
    module = Counter()
    before = dict(module.__dict__)
    model = anyjax.from_torch(module)
    out, state = model.apply(model.params, X, mutable=True)
    assert_close(out, 2 * X + 1)
    assert int(state["calls"]) == 1
    assert_close(state["last"], 2 * X)
    assert_close(state["kept"], X.sum(), reduction=12)
    out, state = model.apply(model.params, X, state=state, mutable=True)
    assert int(state["calls"]) == 2
    assert module.log == []
    assert module.__dict__ == before
    assert int(module.calls) == 0


def test_dropped_state_is_said():
    model = anyjax.from_torch(torch.nn.BatchNorm1d(3).train())
    with pytest.warns(anyjax.errors.StateDropped, match="running_mean"):
        model.apply(model.params, X)


def no_grad_copy(buffer, x):
    with torch.no_grad():
        buffer.copy_(x[0])


def read_first(buffer, x):
    y = x + buffer
    buffer.copy_(x[0])
    return y


def by_cond(buffer, x):
    y = torch.cond(x.sum() > 0, lambda a: a + buffer, lambda a: a * 2.0, (x,))
    buffer.fill_(1)
    return y


WRITES = {
    "copy": (lambda b, x: b.copy_(x[0]) * x, False),
    "no_grad": (no_grad_copy, False),
    "all": (lambda b, x: b.__setitem__(..., x[0]), False),
    "zero": (lambda b, x: b.zero_().add_(x[0]), False),
    "part": (lambda b, x: b[:2].copy_(x[0, :2]), True),
    "add": (lambda b, x: b.add_(x[0]), True),
    "read first": (read_first, True),
    "read by jax": (by_cond, True),
}


@pytest.mark.parametrize("how", WRITES)
def test_state_that_is_made_anew_is_not_missed(how):
    """As rotary frequencies are, which depend on the length of the text alone."""
    write, missed = WRITES[how]

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("buffer", torch.zeros(3))

        def forward(self, x):
            write(self.buffer, x)
            return x * self.buffer

    model = anyjax.from_torch(Module())
    with pytest.warns(anyjax.errors.StateDropped) if missed else contextlib.nullcontext():
        out = model(X)
    want, state = model.apply(model.params, X, mutable=True)
    assert_close(out, want)
    assert state["buffer"].any()


def test_batch_norm_statistics():
    module = torch.nn.BatchNorm1d(3).train()
    model = anyjax.from_torch(module)
    out, state = jax.jit(lambda p, s, x: model.apply(p, x, state=s, mutable=True))(
        model.params, model.state, X
    )
    assert_close(out, module(torch.from_numpy(X)), reduction=4)
    assert_close(
        state,
        {k: v.detach() for k, v in module.named_buffers()} | {"num_batches_tracked": jnp.int32(1)},
    )


def test_modes_are_new_models():
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5)).eval()
    net[1].train()
    model = anyjax.from_torch(net)
    assert model.source.training == (False, False, True)
    assert model.eval().source.training == (False, False, False)
    assert_close(model.eval()(X), net.eval()(torch.from_numpy(X)), reduction=3)
    assert not np.array_equal(model(X, rng=jax.random.key(0)), model.eval()(X))


@pytest.mark.parametrize("size", [3, 1024])
def test_params_are_copies(size):
    module = torch.nn.Linear(size, size)
    model = anyjax.from_torch(module)
    before = np.array(model.params["weight"])
    with torch.no_grad():
        module.weight.zero_()
    assert_close(model.params["weight"], before)
    del module
    donated = jax.jit(lambda x: x + 1, donate_argnums=0)(model.params["weight"])
    assert_close(donated, before + 1)


def test_large_weights_are_shared_until_torch_writes():
    module = torch.nn.Linear(1024, 1024)
    model = anyjax.from_torch(module)
    address = torch._C._data_address(module.weight)
    assert model.params["weight"].unsafe_buffer_pointer() == address
    jax.jit(lambda x: x + 1, donate_argnums=0)(model.params["weight"]).block_until_ready()
    assert float(module.weight.detach().abs().max()) < 1
    assert torch._C._data_address(module.weight) == address


def test_to_torch_writes_back():
    module = torch.nn.Linear(3, 2)
    model = anyjax.from_torch(module)
    doubled = model.with_params(jax.tree.map(lambda x: 2 * x, model.params))
    want = doubled(X)
    assert doubled.to_torch() is module
    assert_close(want, module(torch.from_numpy(X)), reduction=3)


def test_functions_bring_their_modules():
    layer, other = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

    def function(x, second):
        return layer(x) + second(x)

    model = anyjax.from_torch(functools.partial(function, second=other))
    assert set(model.params) == {"layer.weight", "layer.bias", "second.weight", "second.bias"}
    x = torch.from_numpy(X)
    assert_close(model(X), layer(x) + other(x), reduction=3)
    method = anyjax.from_torch(layer.forward)
    assert set(method.params) == {"self.weight", "self.bias"}
    assert_close(method(X), layer(x), reduction=3)


def test_hooks_and_parametrizations_run():
    module = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 2))
    module.register_forward_hook(lambda m, args, out: out * 10)
    assert_close(anyjax.from_torch(module)(X), module(torch.from_numpy(X)), reduction=3)


def test_wrong_argument_names():
    class Net(torch.nn.Module):
        def forward(self, input_ids, attention_mask=None, **kwargs):
            return input_ids

    model = anyjax.from_torch(Net())
    with pytest.raises(WrongArguments) as caught:
        model(input_ids=X, atention_mask=X)
    lines = str(caught.value).splitlines()
    assert lines[0] == "forward would swallow the unknown argument 'atention_mask'"
    assert lines[-2] == "  do:    did you mean 'attention_mask' instead of 'atention_mask'?"
    with pytest.raises(WrongArguments, match="missing a required argument: 'input_ids'"):
        model(attention_mask=X)


@pytest.mark.parametrize("swallows", [True, False])
def test_a_key_by_the_name_that_flax_has(swallows):
    class Taking(torch.nn.Module):
        def forward(self, x, **kwargs):
            return x

    model = anyjax.from_torch(Taking() if swallows else torch.nn.Dropout())
    with pytest.raises(anyjax.errors.WrongArguments, match="'rng' instead of 'rngs'"):
        model(np.ones(2, np.float32), rngs=jax.random.key(0))


def test_names_that_kwargs_lists_are_no_misspelling():
    class Listed(TypedDict, total=False):
        output_masks: float

    class Net(torch.nn.Module):
        def forward(self, x, output_mask=None, **kwargs: Unpack[Listed]):
            return x * kwargs["output_masks"]

    assert_close(anyjax.from_torch(Net())(X, output_masks=2.0), 2 * X)


def test_wrong_params():
    model = anyjax.from_torch(torch.nn.Linear(3, 2))
    with pytest.raises(WrongArguments) as caught:
        model.apply({"weight": jnp.ones((2, 4)), "more": jnp.ones(2)}, X)
    text = str(caught.value)
    assert "bias is missing; more is unknown; weight has shape (2, 4), not (2, 3)" in text


def test_classes_are_refused():
    with pytest.raises(Unsupported, match="pass an instance"):
        anyjax.from_torch(torch.nn.Linear)


def test_extract_jax_convention():
    module = torch.nn.BatchNorm1d(3).eval()
    weights, func = anyjax.extract_jax(module)
    assert set(weights) == set(module.state_dict())
    assert_close(jax.jit(func)(weights, (X,), {}), module(torch.from_numpy(X)), reduction=3)


@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", "float16", "bool", "int8", "complex64", "int64", "float64"]
)
def test_weights_round_trip(dtype):
    tensor = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(getattr(torch, dtype)).t()
    back = to_torch(to_jax(tensor))
    assert torch.equal(back.to(tensor.dtype), tensor)


def test_wide_integers_are_not_cut():
    with jax.enable_x64(False):
        with pytest.raises(Unsupported, match="jax_enable_x64"):
            to_jax(torch.tensor([2**40]))
        assert to_jax(torch.tensor([torch.iinfo(torch.int64).min])).item() == -(2**31)


def test_a_symbolic_size_under_vmap():
    net = torch.nn.Linear(3, 2)
    model = anyjax.from_torch(net)
    rows = jax.ShapeDtypeStruct((*jax.export.symbolic_shape("b"), 3), jnp.float32)
    each = jax.vmap(lambda params, row: model.apply(params, row[None])[0], (None, 0))
    exported = jax.export.export(jax.jit(each))(model.params, rows)
    assert_close(exported.call(model.params, X), net(torch.tensor(X)).detach())


class Named(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.function, self.captured = torch.relu, 3

    def forward(self, x):
        return self.function(x)


def test_a_module_may_have_attributes_of_any_name():
    model = anyjax.from_torch(Named())
    assert model.source.name == "Named" and "Named" in repr(model)
    assert model(np.float32([-1, 2])).tolist() == [0, 2]


class Waits(torch.nn.Module):
    """Its first forward waits, and ``train()`` is its own."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.__dict__["inside"], self.__dict__["go"] = threading.Event(), threading.Event()

    def train(self, mode=True):
        return super().train(mode)

    def forward(self, x):
        if not self.inside.is_set():
            self.inside.set()
            self.go.wait(10)
        return self.layer(x)


def test_another_mode_while_a_thread_traces():
    """What is read of the module is not what the trace has put there."""
    net = Waits().eval()
    model, out = anyjax.from_torch(net), {}
    tasks = {"called": lambda: model(X), "other": model.train}
    run = lambda name: out.setdefault(name, tasks[name]())
    threads = [threading.Thread(target=run, args=(name,)) for name in tasks]
    threads[0].start()
    net.inside.wait(10)
    threads[1].start()
    threads[1].join(0.2)
    net.go.set()
    for thread in threads:
        thread.join(10)
    other = out["other"]
    np.testing.assert_array_equal(other(X), out["called"])
    assert other.to_torch() is net
    assert {*map(id, other.source.slots.tensors.values())} == {*map(id, net.parameters())}


@pytest.mark.parametrize("kind", ["parametrized", "TorchScript"])
def test_pickles_that_torch_refuses(kind):
    layer = torch.nn.Linear(3, 2)
    if kind == "parametrized":
        module = torch.nn.utils.parametrizations.weight_norm(layer)
    else:
        module = torch.jit.script(layer)
    with pytest.raises(Unsupported, match=rf"pickle of(.|\n)*{kind}(.|\n)*model\.save"):
        pickle.dumps(anyjax.from_torch(torch.nn.Sequential(module)))
