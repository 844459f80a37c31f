"""TorchScript modules: scripted, traced, from a file; weights, state, errors as elsewhere."""

import io
import warnings
from typing import Optional

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import DataDependent, ForwardFailed, MissingRng, StateDropped
from tests.tolerance import assert_close

# torch says of all of torch.jit that it is deprecated, and of tracing that it does not see values.
pytestmark = [
    pytest.mark.sample(every=4),
    pytest.mark.filterwarnings("ignore:.torch.jit.*deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

X = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.over = torch.nn.GRU(8, 8, batch_first=True)
        self.heads = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.drop = torch.nn.Dropout(0.5)
        self.last = torch.nn.Linear(8, 3)
        self.tied = torch.nn.Linear(8, 3)
        self.tied.weight = self.last.weight
        self.table = torch.arange(3.0)

    def forward(self, x, scale: Optional[float] = None):  # noqa: UP045 (TorchScript reads it)
        x = torch.nn.functional.gelu(self.norm(self.first(x)))
        seen = self.over(x[None])[0]
        seen = self.heads(seen, seen, seen)[0]
        out = self.last(self.drop(seen[0])) + self.tied(x) + self.table
        out[:, 0] += 1
        if scale is not None:
            out = out * scale
        return out


def net():
    torch.manual_seed(0)
    return Net().eval()


def loaded(module):
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(module), file)
    file.seek(0)
    return torch.jit.load(file)


KINDS = {
    "scripted": torch.jit.script,
    "loaded": loaded,
    "traced": lambda module: torch.jit.trace(module, torch.tensor(X), check_trace=False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_gradients(kind):
    module = net()
    script, model = KINDS[kind](module), anyjax.from_torch(KINDS[kind](module))
    assert set(model.params) == {k for k, _ in script.named_parameters()}
    assert model.source.name == "Net"
    want = module(torch.tensor(X))
    assert_close(model(X), want, reduction=64)
    want.square().sum().backward()
    grads = jax.grad(lambda params: (model.apply(params, X) ** 2).sum())(model.params)
    wanted = {k: p.grad for k, p in module.named_parameters() if k in grads}
    assert_close({k: grads[k] for k in wanted}, wanted, reduction=256, scale=1.0)


def test_weights_are_those_that_are_given():
    model = anyjax.from_torch(torch.jit.script(net()))
    other = net()
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(1.5)
    params = {k: 1.5 * v for k, v in model.params.items()}
    assert_close(model.apply(params, X), other(torch.tensor(X)), reduction=64)


def test_state_and_modes():
    module, script = net(), torch.jit.script(net())
    model = anyjax.from_torch(script).train()
    draw = lambda key: model.apply(model.params, X, mutable=True, rng=jax.random.key(key))
    (one, state), (other, _), (again, _) = draw(0), draw(1), draw(0)
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    module.train()(torch.tensor(X))
    assert_close(state, dict(module.named_buffers()), reduction=8)
    assert not script.training
    np.testing.assert_array_equal(script.norm.running_mean, np.zeros(8))
    with pytest.raises(MissingRng, match="dropout"):
        model(X)


def test_options_are_static():
    module = net()
    model = anyjax.from_torch(torch.jit.script(module))
    assert_close(model(X, scale=2.0), module(torch.tensor(X), 2.0), reduction=64)


def test_a_frozen_module_is_a_constant():
    module = net()
    model = anyjax.from_torch(torch.jit.freeze(torch.jit.script(module)))
    assert model.params == {}
    assert_close(model(X), module(torch.tensor(X)), reduction=64)


def test_an_encoder():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    module = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = torch.randn(2, 5, 8)
    assert_close(anyjax.from_torch(torch.jit.script(module))(x), module(x), reduction=256)


def test_errors_say_what_they_say_elsewhere():
    model = anyjax.from_torch(torch.jit.script(net()))
    with pytest.raises(ForwardFailed, match="contracting dimensions"):
        model(X[:, :3])

    @torch.jit.script
    def choose(x):
        if bool(x.sum() > 0):
            return x
        return -x

    with pytest.raises(DataDependent, match="while they are traced"):
        anyjax.from_torch(choose)(X)


class Counting(torch.nn.Module):
    """Scripted: its number is in C++."""

    n: int

    def __init__(self):
        super().__init__()
        self.n = 0

    def forward(self, x):
        self.n = self.n + 1
        return x * self.n


class Remembering(torch.nn.Module):
    """Scripted: it writes a number that its result does not depend on."""

    size: int

    def __init__(self):
        super().__init__()
        self.size = 0

    def forward(self, x):
        self.size = x.shape[0]
        return x + 1


def test_a_number_that_no_state_carries_is_told_and_stays():
    module = torch.jit.script(Counting())
    model = anyjax.from_torch(module)
    with pytest.warns(StateDropped, match="forward changes n"):
        assert model.apply({}, np.float32(1)) == 1
    for shape in ((1,), (2,), (3,)):  # each is a trace
        assert_close(model(np.ones(shape, np.float32)), np.ones(shape))
    assert module.n == 0


def test_a_number_without_a_consequence_is_silent():
    module = torch.jit.script(Remembering())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_close(anyjax.from_torch(module)(np.ones(3, np.float32)), 2 * np.ones(3))
    assert module.size == 0
