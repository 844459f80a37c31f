"""Complex parameters, views of real and imaginary parts, gradients where they have no direction."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import anyjax
from anyjax.torch.core.dtypes import to_jax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

DRAW = torch.Generator().manual_seed(0)
Z = torch.randn(4, 6, dtype=torch.complex64, generator=DRAW)


class Net(torch.nn.Module):
    """A complex linear layer, a filter of Fourier coefficients, magnitudes at the end."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 5, dtype=torch.complex64)
        self.filter = torch.nn.Parameter(torch.randn(5, dtype=torch.complex64, generator=DRAW))
        self.scale = torch.nn.Parameter(torch.ones(5))

    def forward(self, z):
        z = torch.fft.ifft(torch.fft.fft(self.linear(z)) * self.filter.conj())
        return torch.view_as_real(z).square().sum(-1).sqrt() * self.scale + z.angle().cos()


def test_gradients_are_the_conjugates_of_torchs():
    net = Net()
    net(Z).square().sum().backward()
    model = anyjax.from_torch(net)
    loss = lambda params: (model.apply(params, Z.numpy()) ** 2).sum()
    grads = jax.jit(jax.grad(loss))(model.params)
    for name, parameter in net.named_parameters():
        assert_close(np.conj(grads[name]), parameter.grad, reduction=200)


def test_optax_step_is_torchs():
    """optax, as jax, takes the conjugate for the direction of steepest descent."""
    net = Net()
    model = anyjax.from_torch(net)
    optimizer = optax.sgd(0.1)

    @jax.jit
    def step(params, state):
        loss = lambda params: (model.apply(params, Z.numpy()) ** 2).mean()
        grads = jax.tree.map(jnp.conj, jax.grad(loss)(params))
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), state

    params, state = model.params, optimizer.init(model.params)
    torch_optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        params, state = step(params, state)
        torch_optimizer.zero_grad()
        net(Z).square().mean().backward()
        torch_optimizer.step()
    for name, parameter in net.named_parameters():
        assert params[name].dtype == to_jax(parameter.dtype)
        assert_close(params[name], parameter.detach(), reduction=500)


def write_real(z):
    z = z.clone()
    z.real.mul_(2)
    z.imag[0] = 7
    torch.view_as_real(z)[1, :, 0] = -1
    return z


def write_conj(z):
    z = z.clone()
    z.conj()[0] = 3 + 4j
    z.conj().imag.add_(1)
    return z


def write_complex(z):
    x = torch.view_as_real(z).clone()
    torch.view_as_complex(x)[0].mul_(1j)
    return x


def conj_and_neg_bits(z):
    return z.conj().resolve_conj(), z.conj().imag.resolve_neg(), z.conj().imag + 1, z.mH @ z


@pytest.mark.parametrize("function", [write_real, write_conj, write_complex, conj_and_neg_bits])
def test_views(function):
    model = anyjax.from_torch(function)
    got = jax.jit(lambda z: model.apply({}, z))(Z.numpy())
    assert_close(got, function(Z), reduction=6)


POINTS = torch.tensor([0, 1e-15, -1, 1j, -2 - 1j, 3 + 4j, -0.0], dtype=torch.complex64)
AT_ZERO = {
    "abs": torch.abs,
    "angle": torch.angle,
    "sgn": lambda z: torch.view_as_real(torch.sgn(z)),
    "norm": lambda z: torch.linalg.vector_norm(z[:1]),
    "norm_of_all": lambda z: torch.linalg.vector_norm(z, 3),
    "sqrt_of_one": lambda z: torch.view_as_real(torch.sqrt(z[2:6])),
    "log": lambda z: torch.view_as_real(torch.log(z[2:6])),
    "pow": lambda z: torch.view_as_real(z[2:] ** 3),
    "prod": lambda z: torch.view_as_real(torch.prod(z)),
    "mul_conj": lambda z: (z * z.conj()).real,
}


@pytest.mark.parametrize("name", AT_ZERO)
def test_values_and_gradients_at_zero_and_at_cuts(name):
    function = AT_ZERO[name]
    z = POINTS.clone().requires_grad_()
    want = function(z)
    want.sum().backward()
    model = anyjax.from_torch(function)
    assert_close(model.apply({}, POINTS.numpy()), want.detach())
    got = jax.grad(lambda z: model.apply({}, z).sum())(POINTS.numpy())
    assert_close(np.conj(got), z.grad, reduction=16)


HERMITIAN = Z[:, :4] + Z[:, :4].mH
GAUGE_FREE = {
    "eig": lambda a: torch.linalg.eig(a)[0].abs().sum(),
    "eigvals": lambda a: torch.linalg.eigvals(a).square().sum().real,
    "eig_projections": lambda a: (lambda w, v: (v @ torch.diag(w.square()) @ v.inverse()).abs())(
        *torch.linalg.eig(a)
    ),
    "eigh": lambda a: (lambda w, v: (v.abs().square() * w).sum(-1))(*torch.linalg.eigh(a + a.mH)),
    "svd": lambda a: (lambda u, s, v: (u * s.exp() @ v).abs())(*torch.linalg.svd(a)),
    "svdvals": lambda a: torch.linalg.svdvals(a),
    "qr": lambda a: (lambda q, r: torch.cat([(q @ q.mH).abs(), r.abs()]))(*torch.linalg.qr(a)),
    "slogdet": lambda a: torch.view_as_real(torch.linalg.slogdet(a)[0]),
    "solve": lambda a: torch.linalg.solve(a, a.mH).abs(),
    "cholesky": lambda a: torch.linalg.cholesky(a @ a.mH + torch.eye(4)).abs(),
}


@pytest.mark.parametrize("name", GAUGE_FREE)
def test_linear_algebra_up_to_phase(name):
    function, a = GAUGE_FREE[name], Z[:, :4].clone().requires_grad_()
    want = function(a)
    weight = torch.rand(want.shape, generator=torch.Generator().manual_seed(1))
    (want * weight).sum().backward()
    model = anyjax.from_torch(function)
    assert_close(model.apply({}, Z[:, :4].numpy()), want.detach(), reduction=256)
    loss = lambda a: (model.apply({}, a) * weight.numpy()).sum()
    assert_close(np.conj(jax.grad(loss)(Z[:, :4].numpy())), a.grad, reduction=4096)
