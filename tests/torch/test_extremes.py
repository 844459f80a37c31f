"""Gradients at the ends of functions' domains and at ties: NaN, infinity and choices as torch's."""

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import anyjax

pytestmark = pytest.mark.sample(every=10)

inf = float("inf")
Z = torch.zeros(3)
CASES = {
    "norm0": (lambda x: x.norm(), Z),
    "linalg.norm0": (lambda x: torch.linalg.norm(x), Z),
    "vnorm rows": (lambda x: torch.linalg.vector_norm(x, dim=1).sum(), torch.zeros(2, 3)),
    "sqrt0": (lambda x: x.sqrt().sum(), Z),
    "pow.5": (lambda x: (x**0.5).sum(), Z),
    "pow0": (lambda x: (x**0).sum(), Z),
    "pow2": (lambda x: (x**2).sum(), Z),
    "lsm -inf": (lambda x: F.log_softmax(x, -1)[0], torch.tensor([0.0, -inf, 1.0])),
    "sm allinf": (lambda x: F.softmax(x, -1).sum(), torch.full((3,), -inf)),
    "cdist": (lambda x: torch.cdist(x, x).sum(), torch.ones(3, 2)),
    "normalize": (lambda x: F.normalize(x, dim=0).sum(), Z),
    "cos": (lambda x: F.cosine_similarity(x, torch.ones(3), dim=0), Z),
    "std": (lambda x: x.std(), torch.ones(3)),
    "var": (lambda x: x.var(), torch.ones(3)),
    "lse": (lambda x: torch.logsumexp(x, 0), torch.full((3,), -inf)),
    "where": (lambda x: torch.where(x > 0, x.sqrt(), 0 * x).sum(), Z),
    "div": (lambda x: (x / 0).sum(), torch.ones(3)),
    "clamp": (lambda x: x.clamp(0, 1).sum(), torch.tensor([0.0, 1.0, 0.5])),
    "abs": (lambda x: x.abs().sum(), Z),
    "relu": (lambda x: x.relu().sum(), Z),
    "max": (lambda x: x.max(), torch.ones(3)),
    "amax": (lambda x: x.amax(), torch.ones(3)),
    "maximum": (lambda x: torch.maximum(x, torch.ones(3)).sum(), torch.ones(3)),
    "log0": (lambda x: x.log().sum(), Z),
    "acos1": (lambda x: x.acos().sum(), torch.ones(3)),
    "prod0": (lambda x: x.prod(), torch.tensor([0.0, 0.0, 2.0])),
    "pairwise": (lambda x: F.pairwise_distance(x, x).sum(), torch.ones(2, 3)),
    "cummax": (lambda x: x.cummax(0)[0].sum(), torch.ones(3)),
    "norm1": (lambda x: x.norm(1), Z),
    "norminf": (lambda x: x.norm(inf), torch.ones(3)),
    "hypot": (lambda x: torch.hypot(x, x).sum(), Z),
    "xlogy": (lambda x: torch.xlogy(x, x).sum(), Z),
    "atan2": (lambda x: torch.atan2(x, x).sum(), Z),
    "silu inf": (lambda x: F.silu(x).sum(), torch.tensor([-inf, -200.0, 200.0])),
    "gelu": (lambda x: F.gelu(x).sum(), torch.tensor([-100.0, 100.0])),
    "softplus": (lambda x: F.softplus(x).sum(), torch.tensor([-200.0, 200.0])),
    "tanh": (lambda x: x.tanh().sum(), torch.tensor([-200.0, 200.0])),
    "sigmoid": (lambda x: x.sigmoid().log().sum(), torch.tensor([-200.0, 200.0])),
    "logsigmoid": (lambda x: F.logsigmoid(x).sum(), torch.tensor([-200.0, 200.0])),
    "smoothl1": (lambda x: F.smooth_l1_loss(x, Z), Z),
    "huber": (lambda x: F.huber_loss(x, Z), Z),
    "frac": (lambda x: x.frac().sum(), Z),
    "layernorm": (lambda x: F.layer_norm(x, (3,)).sum(), torch.ones(3)),
    "minimum": (lambda x: torch.minimum(x, torch.ones(3)).sum(), torch.ones(3)),
    "renorm": (lambda x: torch.renorm(x, 2, 0, 1.0).sum(), torch.zeros(2, 2)),
    "dist": (lambda x: torch.dist(x, x), Z),
    "erfinv": (lambda x: torch.erfinv(x).sum(), torch.tensor([1.0, -1.0])),
    "rsqrt": (lambda x: x.rsqrt().sum(), Z),
    "sinc": (lambda x: torch.sinc(x).sum(), Z),
    "logaddexp": (lambda x: torch.logaddexp(x, x).sum(), torch.full((2,), -inf)),
    "median": (lambda x: x.median(), torch.ones(4)),
    "sort": (lambda x: (x.sort()[0] * torch.arange(3.0)).sum(), torch.ones(3)),
    "topk": (lambda x: x.topk(1)[0].sum(), torch.ones(3)),
    "relu6": (lambda x: F.relu6(x).sum(), torch.tensor([0.0, 6.0])),
    "hardtanh": (lambda x: F.hardtanh(x).sum(), torch.tensor([-1.0, 1.0])),
    "leaky": (lambda x: F.leaky_relu(x).sum(), Z),
    "elu": (lambda x: F.elu(x).sum(), Z),
    "hardsig": (lambda x: F.hardsigmoid(x).sum(), torch.tensor([-3.0, 3.0])),
    "maxpool ties": (lambda x: F.max_pool1d(x[None], 2).sum(), torch.ones(1, 4)),
    "fmod": (lambda x: torch.fmod(x, 1).sum(), torch.ones(2)),
    "nanmean": (lambda x: x.nanmean(), torch.tensor([1.0, float("nan")])),
    "nansum": (lambda x: x.nansum(), torch.tensor([1.0, float("nan")])),
}
NAN = torch.tensor([2.0, 0.5, float("nan"), -3.0])
NANS = {
    "amax": lambda x: x.amax(),
    "amin": lambda x: x[None].amin(1, keepdim=True).sum(),
    "max": lambda x: x.max(),
    "aminmax": lambda x: sum(x.aminmax()),
    "maximum": lambda x: torch.maximum(x, x.flip(0) / 2).sum(),
    "minimum": lambda x: torch.minimum(x.flip(0) / 2, x).sum(),
    "clamp": lambda x: x.clamp(-1, 1).sum(),
    "clamp min": lambda x: torch.clamp(torch.ones(4), min=x).sum(),
    "clamp max": lambda x: x.clamp(max=x.flip(0)).sum(),
    "relu6": lambda x: F.relu6(x).sum(),
    "hardswish": lambda x: F.hardswish(x).sum(),
    "hardsigmoid": lambda x: F.hardsigmoid(x / 10).sum(),
    "elu": lambda x: F.elu(x).sum(),
    "selu": lambda x: F.selu(x).sum(),
    "huber": lambda x: F.huber_loss(x, torch.zeros(4)),
    "hinge": lambda x: F.hinge_embedding_loss(x, torch.tensor([1.0, -1, -1, 1])),
}
CASES |= {f"{name} of NaN": (function, NAN) for name, function in NANS.items()}
# torch divides 0 by 0 there; the derivative along the axes exists, and is finite.
FINITE = {"xlogy", "logaddexp"}


@pytest.mark.parametrize("name", CASES)
def test_gradient(name):
    function, x = CASES[name]
    given = x.clone().requires_grad_()
    function(given).backward()
    want = given.grad.numpy()
    model = anyjax.from_torch(function)
    got = np.asarray(jax.jit(jax.grad(lambda x: model.apply({}, x)))(x.numpy()))
    if name in FINITE:
        assert np.isnan(want).all() and np.isfinite(got).all()
    else:
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
