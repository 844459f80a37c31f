"""bfloat16 modules from end to end: dtypes as torch's, one rounding in each operator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import functional as F

import anyjax
from anyjax.torch.core import interop
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

EPS = float(jnp.finfo("bfloat16").eps)
DRAW = torch.Generator().manual_seed(0)


def draw(*shape):
    return torch.randn(*shape, generator=DRAW).bfloat16()


class Net(torch.nn.Module):
    """Convolution, batch norm, attention, layer norm, a linear layer, softmax."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(6, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm1d(8)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.last = torch.nn.LayerNorm(8)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        x = F.gelu(self.norm(self.conv(x))).mT
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return torch.softmax(self.head(self.last(x)), -1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("train", [True, False])
def test_module_end_to_end(dtype, train):
    torch.manual_seed(0)
    module = Net().to(dtype).train(train)
    x = draw(4, 6, 10).to(dtype)
    model = anyjax.from_torch(module)
    out, state = model.apply(model.params, interop.to_jax(x), mutable=True, rng=jax.random.key(0))
    want = module(x)
    name = str(dtype).removeprefix("torch.")
    eps = torch.finfo(dtype).eps
    assert str(out.dtype) == name
    assert_close(np.float32(out), want.detach().float(), rtol=8 * eps)
    for key, buffer in module.named_buffers():
        if train and "num_batches" not in key:
            assert str(state[key].dtype) == name
            assert_close(np.float32(state[key]), buffer.float(), rtol=2 * eps)


def test_gradients_keep_dtypes():
    torch.manual_seed(0)
    module = Net().to(torch.bfloat16).eval()
    x, weight = draw(4, 6, 10), torch.arange(5.0)
    (module(x).float() * weight).sum().backward()
    model = anyjax.from_torch(module)
    loss = lambda p: (model.apply(p, interop.to_jax(x)).astype(np.float32) * weight.numpy()).sum()
    grads = jax.jit(jax.grad(loss))(model.params)
    exact = Net().eval()
    exact.load_state_dict(module.state_dict())
    (exact(x.float()) * weight).sum().backward()
    for (name, parameter), best in zip(module.named_parameters(), exact.parameters()):
        assert grads[name].dtype == jnp.bfloat16
        scale = float(best.grad.abs().max())
        ours = np.abs(np.float32(grads[name]) - best.grad.numpy()).max()
        torchs = float((parameter.grad.float() - best.grad).abs().max())
        assert ours <= 2 * torchs + 2 * EPS * scale, name


X = draw(64, 64)
THIRD = 1 / 3
ONCE = {
    "mul": lambda x: x * THIRD,
    "mul_tensor": lambda x: x * torch.tensor(THIRD),
    "mul_of": lambda x: torch.tensor(THIRD) * x,
    "mul_short": lambda x: x * torch.tensor(THIRD, dtype=x.dtype),
    "mul_int": lambda x: x * 1001,
    "div": lambda x: x / THIRD,
    "div_tensor": lambda x: x / torch.tensor(THIRD),
    "div_into": lambda x: THIRD / x,
    "floor_divide": lambda x: x // THIRD,
    "add": lambda x: x + THIRD,
    "sub": lambda x: THIRD - x,
    "less": lambda x: (x < THIRD).to(x.dtype),
    "leaky_relu": lambda x: F.leaky_relu(x, THIRD),
    "elu": lambda x: F.elu(x, THIRD),
    "softplus": lambda x: F.softplus(x, THIRD),
    "softshrink": lambda x: F.softshrink(x, THIRD),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "log_sigmoid": F.logsigmoid,
    "silu": F.silu,
    "mish": F.mish,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "glu": F.glu,
    "exp2": torch.exp2,
    "log10": lambda x: torch.log10(x.abs()),
    "sinc": torch.sinc,
    "logaddexp": lambda x: torch.logaddexp(x, x.flip(0)),
    "lerp": lambda x: torch.lerp(x, x.flip(0), THIRD),
    "addcmul": lambda x: torch.addcmul(x, x, x.flip(0), value=THIRD),
    "addcdiv": lambda x: torch.addcdiv(x, x, 3 + x.flip(0).abs(), value=THIRD),
    "logit": lambda x: torch.logit((x.abs() / 8).clamp(0.0625, 0.9375)),
    "rms_norm": lambda x: F.rms_norm(x, (64,)),
    "cumsum": lambda x: x.abs().reshape(-1).cumsum(0),
    "cumprod": lambda x: x.exp().cumprod(0)[:20],
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "sum": torch.sum,
    "mean": lambda x: x.mean(0),
    "bilinear": lambda x: F.bilinear(x, x, x[None]),
}


@pytest.mark.parametrize("name", ONCE)
def test_rounded_once(name):
    """Off by half a unit in the last place, as one rounding is, or by no more than torch is."""
    function = ONCE[name]
    exact, want = function(X.float()).numpy(), function(X)
    got = jax.jit(anyjax.from_torch(function).apply)({}, interop.to_jax(X))
    assert got.dtype == jnp.bfloat16
    unit = EPS * np.maximum(np.abs(exact), 0.02 * np.abs(exact).max())
    ours, torchs = (
        float((np.abs(x - exact) / unit).max()) for x in (np.float32(got), want.float().numpy())
    )
    assert ours <= max(torchs, 0.51)


def test_a_scalar_keeps_its_gradient():
    scale = torch.nn.Parameter(torch.tensor(THIRD))
    module = torch.nn.Module()
    module.scale, module.forward = scale, lambda x: x * module.scale
    (module(X).float() ** 2).sum().backward()
    model = anyjax.from_torch(module)
    loss = lambda p: (model.apply(p, interop.to_jax(X)).astype(np.float32) ** 2).sum()
    grads = jax.grad(loss)(model.params)
    assert grads["scale"].dtype == np.float32
    assert_close(grads["scale"], scale.grad, rtol=EPS)


class Wide(torch.nn.Module):
    """A norm in float32 of rows in the parameters' dtype."""

    def __init__(self):
        super().__init__()
        self.table, self.norm = torch.nn.Embedding(7, 16), torch.nn.BatchNorm1d(16)
        self.gain = torch.nn.Parameter(torch.randn(16))

    def forward(self, ids):
        rows = self.table(ids)
        wide = rows.float()
        scale = wide.pow(2).mean(-1, keepdim=True).rsqrt()
        return self.norm(self.gain * (wide * scale).to(rows.dtype)), scale


def test_parameters_that_the_caller_has_rounded():
    """Weights kept in float32 and rounded for each step compute what a bfloat16 module does."""
    torch.manual_seed(0)
    module, ids = Wide().eval(), np.array([1, 5, 2])
    model = anyjax.from_torch(module)
    half = lambda tree: {k: v.astype(jnp.bfloat16) for k, v in tree.items()}
    apply = lambda params: model.apply(half(params), ids)
    got, scale = jax.jit(apply)(model.params)
    module.table.bfloat16()
    module.gain.data = module.gain.data.bfloat16()
    want, exact = module(torch.tensor(ids))
    assert got.dtype == jnp.bfloat16
    assert_close(np.float32(got), want.detach().float().numpy(), rtol=EPS)
    assert_close(scale, exact.detach().numpy(), reduction=16)
    grads = jax.grad(lambda params: apply(params)[0].astype("float32").max())(model.params)
    assert {g.dtype for g in grads.values()} == {jnp.dtype("float32")}
    state = model.state | {"norm.running_mean": jnp.zeros(16, jnp.bfloat16)}
    _, new = model.train().apply(half(model.params), ids, state=state, mutable=True)
    assert {k: v.dtype for k, v in new.items()} == {k: v.dtype for k, v in state.items()}
