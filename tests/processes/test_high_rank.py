"""Reductions of seven dimensions on a CPU, in processes of their own: a fault ends the process."""

import subprocess
import sys
from importlib import metadata

import jax
import jax.numpy as jnp
import pytest

import anyjax.model  # which has JAX lower them so
from anyjax.numerics import high_rank

pytestmark = pytest.mark.processes
JAXLIB = metadata.version("jaxlib")
NEEDS = JAXLIB in high_rank.RELEASES

# Attention over windows of patches in three dimensions, gates of each window and a sum of them.
MODEL = """
import jax, numpy as np, optax, torch, anyjax
from torch import nn

class Windows(nn.Module):
    def __init__(self, width=8, window=4, heads=2):
        super().__init__()
        self.window, self.heads = window, heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gate = nn.Parameter(torch.rand(2, 2, 1, 1, 1, 1))

    def forward(self, x):  # batch, depth, height, width, channels
        b, d, h, w, c = x.shape
        n = self.window
        x = x.reshape(b, d // n, n, h // n, n, w // n, n, c).permute(0, 1, 3, 5, 2, 4, 6, 7)
        q, k, v = self.qkv(x).reshape(-1, n**3, 3, self.heads, c // self.heads).unbind(2)
        out = nn.functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)))
        out = out.transpose(1, 2).reshape(x.shape)
        return self.out((out * x * self.gate).sum(3).mean((1, 2)))  # one window deep: a size is 1

torch.manual_seed(0)
module = Windows().eval()
x = torch.randn(3, 4, 8, 8, 8)
expected = module(x)
expected.square().sum().backward()
slopes = {k: p.grad.numpy() for k, p in module.named_parameters()}
model, x = anyjax.from_torch(module), x.numpy()
close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * np.abs(b).max())
loss = lambda params: (model.apply(params, x) ** 2).sum()
"""
CALLS = {
    "call": "close(model(x), expected.detach().numpy())",
    "jit": "close(jax.jit(model.apply)(model.params, x), expected.detach().numpy())",
    "gradient": "jax.tree.map(close, jax.jit(jax.grad(loss))(model.params), slopes)",
    "gradient without jit": "jax.tree.map(close, jax.grad(loss)(model.params), slopes)",
    "vmap": "jax.jit(jax.vmap(model.apply, (None, 0)))(model.params, np.stack([x, x]))",
    "bfloat16": """
params, x = jax.tree.map(lambda a: a.astype("bfloat16"), (model.params, x))
jax.jit(model.apply)(params, x)
""",
    "step": """
step = anyjax.train.make_step(lambda model, x: (model(x) ** 2).sum(), optax.sgd(1e-3))
state, metrics = step(anyjax.train.TrainState.create(model, optax.sgd(1e-3)), x)
close(metrics["loss"], (expected.detach().numpy() ** 2).sum())
""",
}


@pytest.mark.parametrize("name", CALLS)
def test_a_model_runs(name):
    program = f"{MODEL}\nfor _ in range(3):\n    " + CALLS[name].strip().replace("\n", "\n    ")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.skipif(not NEEDS, reason=f"jaxlib {JAXLIB} has not this fault")
def test_only_high_ranks_on_cpus_are_rounded():
    counted = lambda f, *shapes: (
        lambda *platforms: (
            jax.jit(f)
            .trace(*(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes))
            .lower(lowering_platforms=platforms)
            .as_text()
            .count("reduce_precision")
        )
    )
    high = counted(lambda x: x.sum(3), (3, 1, 2, 2, 8, 8, 8))
    assert (high("cpu"), high("tpu"), high("cuda"), high("cpu", "tpu")) == (1, 0, 0, 1)
    low = counted(lambda x: x.sum(3), (3, 2, 2, 8, 8, 8))
    assert low("cpu") == 0
    integers = counted(lambda x: x.astype(jnp.int32).sum(3), (3, 1, 2, 2, 8, 8, 8))
    assert integers("cpu") == 0


def test_other_releases_are_left_alone():
    assert anyjax.model and not high_rank.protect("0.10.1") and not high_rank.protect("0.12.0.1")
