"""``torch.autocast`` inside forward casts as torch's lists say, inside composite operators, too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import functional as F

import anyjax
from anyjax.errors import Unsupported
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=5)

X = torch.randn(4, 8, 8, generator=torch.Generator().manual_seed(0))
W = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))
LSTM = torch.nn.LSTM(8, 8), torch.nn.LSTMCell(8, 8)
GRU = torch.nn.GRU(8, 8), torch.nn.GRUCell(8, 8)
RNN = torch.nn.RNN(8, 8), torch.nn.RNNCell(8, 8, nonlinearity="relu")
CASES = {
    "linear": lambda x: F.linear(x, W),
    "matmul": lambda x: x @ W,
    "einsum": lambda x: torch.einsum("bij,kj->bik", x, W),
    "tensordot": lambda x: torch.tensordot(x, W, 1),
    "inner": lambda x: torch.inner(x, W),
    "linalg_matmul": lambda x: torch.linalg.matmul(x, W),
    "conv_same": lambda x: F.conv1d(x, W[:, :, None], padding="same"),
    "cov": lambda x: torch.cov(x[0]),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "pad": lambda x: F.pad(x.bfloat16(), (1, 1), mode="reflect"),
    "softmax": lambda x: torch.softmax(x @ W, -1),
    "layer_norm": lambda x: F.layer_norm(x @ W, (8,)),
    "gelu": lambda x: F.gelu(x @ W),
    "cross_entropy": lambda x: F.cross_entropy(x[0] @ W, torch.arange(8)),
    "nll_loss": lambda x: F.nll_loss((x[0] @ W).log_softmax(-1), torch.arange(8)),
    "mse_loss": lambda x: F.mse_loss(x @ W, x),
    "inv": lambda x: torch.linalg.inv(x.bfloat16()),
    "cat": lambda x: torch.cat([x, x @ W]),
    "stack": lambda x: torch.stack([x @ W, x]),
    "prod": lambda x: (x @ W).prod(-1),
    "sum": lambda x: (x @ W).sum(-1),
    "add": lambda x: x @ W + x,
    "lstm": lambda x: LSTM[0](x)[0],
    "lstm_cell": lambda x: LSTM[1](x[0])[0],
    "gru": lambda x: GRU[0](x)[0],
    "gru_cell": lambda x: GRU[1](x[0]),
    "rnn": lambda x: RNN[0](x)[0],
    "rnn_cell": lambda x: RNN[1](x[0]),
    "switched_off": lambda x: torch.autocast("cpu", enabled=False)(lambda: x @ W)(),
}


def autocast(function):
    def forward(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return function(x)

    return forward


@pytest.mark.parametrize("name", CASES)
def test_casts_as_torch_does(name):
    function = autocast(CASES[name])
    torch._C._set_mkldnn_enabled(False)  # oneDNN's LSTM needs a CPU with bfloat16 instructions
    try:
        with torch.no_grad():
            want = function(X)
    finally:
        torch._C._set_mkldnn_enabled(True)
    model = anyjax.from_torch(function)
    got = jax.jit(lambda x: model.apply(model.params, x))(X.numpy())
    assert str(got.dtype) == str(want.dtype).removeprefix("torch.")
    assert_close(got.astype(np.float32), want.float(), rtol=2 * float(jnp.finfo("bfloat16").eps))


def test_weights_and_gradients_stay_float32():
    module = torch.nn.Sequential(
        torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)
    )
    forward = module.forward
    module.forward = autocast(forward)
    (module(X) ** 2).sum().backward()
    model = anyjax.from_torch(module)
    loss = lambda params: (model.apply(params, X.numpy()) ** 2).sum()
    grads = jax.jit(jax.grad(loss))(model.params)
    for name, parameter in module.named_parameters():
        assert grads[name].dtype == np.float32
        assert_close(grads[name], parameter.grad, rtol=4 * float(jnp.finfo("bfloat16").eps))


def test_a_region_ends():
    def forward(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = torch.einsum("bij,jk->bik", x, W)
        return inside, torch.einsum("bij,jk->bik", x, W)

    model = anyjax.from_torch(forward)
    assert [x.dtype for x in model.apply({}, X.numpy())] == [jnp.bfloat16, np.float32]


def test_autocast_around_a_model_is_refused():
    model = anyjax.from_torch(lambda x: x @ W)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(Unsupported, match="around"):
        model.apply({}, X.numpy())


def test_pinv_is_refused():
    model = anyjax.from_torch(autocast(torch.linalg.pinv))
    with pytest.raises(Unsupported, match="pinv"):
        model.apply({}, X.numpy())
