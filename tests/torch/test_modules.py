"""What torch does around a module's forward: hooks, parametrizations, torch.func, padding."""

import jax
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence, pad_sequence, unpad_sequence

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)


def hooked():
    """Each hook changes something, and order matters."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    net[0].register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    net[0].register_forward_pre_hook(lambda m, args: args[0] + 1)
    net[0].register_forward_hook(lambda m, args, out: out + args[0].sum(-1, keepdim=True))
    net[1].register_forward_hook(lambda m, args, out: None)
    net[2].register_forward_pre_hook(lambda m, args, kwargs: (args, kwargs), with_kwargs=True)
    net[2].register_forward_hook(lambda m, args, out: out.mul_(3))
    net.register_forward_hook(lambda m, args, kwargs, out: out + args[0], with_kwargs=True)
    gone = net[1].register_forward_hook(lambda m, args, out: out * 100)
    gone.remove()
    return net


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT

    def right_inverse(self, x):
        return x.triu()


class Scaled(nn.Module):
    """With a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return x * self.scale


def parametrized():
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    parametrize.register_parametrization(layer, "weight", Scaled())
    parametrize.register_parametrization(layer, "bias", Scaled())
    return layer


MODULES = {
    "hooks": hooked,
    "parametrization": parametrized,
    "weight_norm": lambda: parametrizations.weight_norm(nn.Linear(3, 4), dim=1),
    "weight_norm, whole": lambda: parametrizations.weight_norm(nn.Conv1d(5, 2, 2), dim=None),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(3, 4)),
    "spectral_norm": lambda: parametrizations.spectral_norm(nn.Linear(3, 4)).eval(),
    "spectral_norm, training": lambda: parametrizations.spectral_norm(nn.Linear(3, 4)),
}


@pytest.mark.parametrize("name", MODULES)
def test_module(name):
    """Values, gradients of all parameters, and the buffers that training writes."""
    torch.manual_seed(0)
    module = MODULES[name]()
    model = anyjax.from_torch(module)

    def loss(params):
        out, state = model.apply(params, X, mutable=True)
        return (out**2).sum(), (out, state)

    grads, (got, state) = jax.jit(jax.grad(loss, has_aux=True))(model.params)
    want = module(torch.tensor(X))
    (want**2).sum().backward()
    assert_close(got, want, reduction=64)
    assert_close(grads, {k: p.grad for k, p in module.named_parameters()}, reduction=1024)
    assert_close(state, {k: v for k, v in module.named_buffers() if k in state}, reduction=64)


def test_power_iterations_go_on_with_the_state():
    torch.manual_seed(0)
    module = parametrizations.spectral_norm(nn.Linear(3, 4), n_power_iterations=2)
    model = anyjax.from_torch(module)
    state = model.state
    for _ in range(3):
        got, state = model.apply(model.params, X, state=state, mutable=True)
        assert_close(got, module(torch.tensor(X)), reduction=256)
    assert_close(state, dict(module.named_buffers()), reduction=256)


torch.manual_seed(0)
LAYERS = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2))


def energy(x):
    return (x.sin() * x.flip(0)).sum()


FUNC = {
    "grad": lambda x: torch.func.grad(energy)(x),
    "grad_and_value": lambda x: torch.func.grad_and_value(energy)(x),
    "grad with aux": lambda x: torch.func.grad(lambda x: (energy(x), x * 2), has_aux=True)(x),
    "vjp": lambda x: torch.func.vjp(lambda x: x.cumsum(0) ** 2, x)[1](x.cos())[0],
    "vmap": lambda x: torch.vmap(torch.dot, (0, None))(x, x[0]),
    "vmap of grad": lambda x: torch.vmap(torch.func.grad(energy))(x),
    "jvp": lambda x: torch.func.jvp(torch.tanh, (x,), (x.cos(),)),
    "jacrev": lambda x: torch.func.jacrev(lambda x: x.cumsum(0) ** 2)(x[:, 0]),
    "jacfwd": lambda x: torch.func.jacfwd(lambda x: x.cumsum(0) ** 2)(x[:, 0]),
    "jvp of a product with a number": lambda x: torch.func.jvp(
        lambda x: 2 * x.softmax(-1) + 3, (x,), (x.cos(),)
    ),
    "jvp of grad": lambda x: torch.func.jvp(torch.func.grad(energy), (x,), (x.cos(),))[1],
    "jvp of layers": lambda x: torch.func.jvp(LAYERS, (x,), (x.cos(),)),
    "hessian": lambda x: torch.func.hessian(energy)(x[0]),
    "second derivatives": lambda x: torch.func.jacrev(torch.func.jacrev(energy))(x[0]),
}


# torch's own: its first jvp scripts some decompositions.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", FUNC)
def test_func(name):
    model = anyjax.from_torch(FUNC[name])
    got = jax.jit(lambda x: model.apply(model.params, x))(X)
    want = FUNC[name](torch.tensor(X))
    assert_close(got, want, reduction=64)


def padded(x):
    rows = [x[:2], x[:5], x[3:4]]
    left = pad_sequence(rows, padding_side="left", padding_value=-1.0)
    right = pad_sequence(rows, batch_first=True)
    packed = pad_packed_sequence(pack_sequence(rows, enforce_sorted=False))
    return left, right, packed, unpad_sequence(right, torch.tensor([2, 5, 1]), batch_first=True)


def test_sequences_of_unequal_lengths():
    model = anyjax.from_torch(padded)
    assert_close(jax.jit(lambda x: model.apply({}, x))(X), padded(torch.tensor(X)))


def halted(x):
    """Each part has a gradient, or none."""
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
    with torch.inference_mode():
        c = float(x.shape[0])
    with torch.set_grad_enabled(False):
        d = x**2
    return (a + b * c + d + x.detach() * x + torch.no_grad()(torch.exp)(x)).sum()


def test_what_has_no_gradient():
    x = torch.tensor(X, requires_grad=True)
    want = halted(x)
    want.backward()
    model = anyjax.from_torch(halted)
    got, grad = jax.jit(jax.value_and_grad(lambda x: model.apply({}, x)))(X)
    assert_close(got, want, reduction=16)
    assert_close(grad, x.grad)


def test_a_packed_sequence_is_a_result():
    pack = torch.nn.utils.rnn.pack_padded_sequence
    x = torch.arange(24.0).reshape(2, 4, 3)
    out = anyjax.from_torch(lambda x: pack(x, [4, 2], batch_first=True))(x)
    expected = pack(x, [4, 2], batch_first=True)
    assert type(out) is type(expected)
    np.testing.assert_array_equal(out.data, expected.data)
    np.testing.assert_array_equal(out.batch_sizes, expected.batch_sizes)
