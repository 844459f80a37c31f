"""Functions of arrays of unknown sizes: name -> (shapes with letters, function)."""

import jax
import jax.numpy as jnp
from jax import lax

from tests.conformance.stablehlo_cases.programs import norm, step


def attention(x, w):
    q, k, v = jnp.split(x @ w, 3, -1)
    scores = jnp.einsum("bqd,bkd->bqk", q, k)
    length = x.shape[1]
    mask = jnp.arange(length)[:, None] >= jnp.arange(length)
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), v)


def pooled(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 2), "VALID")


CASES = {
    "elementwise": ("b", jnp.sin),
    "add": ("b,3 3", jnp.add),
    "broadcast": ("b,1 c", jnp.multiply),
    "matmul": ("b,4 4,c", jnp.matmul),
    "batched_matmul": ("a,b,c a,c,4", jnp.matmul),
    "sum": ("b,c", lambda x: (x.sum(0), x.mean(1), x.max())),
    "var": ("b,3", lambda x: jnp.var(x, 0)),
    "softmax": ("b,c", jax.nn.softmax),
    "norm": ("b,8 8", norm),
    "reshape": ("a,b,4", lambda x: x.reshape(x.shape[0] * x.shape[1], 4)),
    "flatten": ("b,3,4", lambda x: x.reshape(x.shape[0], -1)),
    "transpose": ("a,b", jnp.transpose),
    "concatenate": ("a,3 b,3", lambda x, y: jnp.concatenate([x, y])),
    "stack": ("b b", lambda x, y: jnp.stack([x, y])),
    "split": ("b,6", lambda x: jnp.split(x, 2, 1)),
    "slice": ("b,4", lambda x: x[1:, :2]),
    "slice_end": ("b", lambda x: x[:-1] + x[1:]),
    "pad": ("b,3", lambda x: jnp.pad(x, ((1, 2), (0, 0)))),
    "arange": ("b", lambda x: x * jnp.arange(x.shape[0])),
    "ones": ("b", lambda x: x + jnp.ones((3, x.shape[0]))),
    "size": ("b", lambda x: x / x.shape[0]),
    "tile": ("b,2", lambda x: jnp.tile(x, (2, 1))),
    "roll": ("b", lambda x: jnp.roll(x, 1)),
    "flip": ("b,3", jnp.flip),
    "take": ("b,3", lambda x: x[jnp.array([0, 1])]),
    "scatter": ("b", lambda x: x.at[0].add(2.0)),
    "where": ("a,b", lambda x: jnp.where(x > 0, x, 0)),
    "sort": ("b", jnp.sort),
    "argsort": ("b", jnp.argsort),
    "argmax": ("a,b", lambda x: jnp.argmax(x, 1)),
    "cumsum": ("b,3", lambda x: jnp.cumsum(x, 0)),
    "einsum": ("b,i,4 b,j,4", lambda x, y: jnp.einsum("bid,bjd->bij", x, y)),
    "tril": ("b,b", jnp.tril),
    "eye": ("b,b", lambda x: x + jnp.eye(x.shape[0])),
    "conv": ("b,3,n,n 4,3,3,3",
             lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME")),
    "conv_stride": ("b,3,2*n 4,3,3",
                    lambda x, k: lax.conv_general_dilated(x, k, (2,), "VALID")),
    "pool": ("b,2*n", pooled),
    "attention": ("b,t,4 4,12", attention),
    "map": ("b,3", lambda x: jax.vmap(lambda v: v * v.sum())(x)),
    "scan": ("3 5,3", lambda c, xs: lax.scan(step, c, xs)),
    "scan_batched": ("b,3 5,b,3", lambda c, xs: lax.scan(step, c, xs)),
    "fori": ("b", lambda x: lax.fori_loop(0, 4, lambda i, c: c * 0.5 + i, x)),
    "fori_size": ("b", lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c * 0.9 + i, x)),
    "cond": ("b", lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)),
    "dynamic_slice": ("b", lambda x: lax.dynamic_slice(x, (1,), (2,))),
    "random": ("b", lambda x: x + jax.random.normal(jax.random.key(0), x.shape)),
    "top_k": ("b,c", lambda x: lax.top_k(x, 2)),
    "fft": ("b,8", lambda x: jnp.abs(jnp.fft.rfft(x))),
    "cholesky": ("b,3,3", lambda x: jnp.linalg.cholesky(x @ x.mT + 3 * jnp.eye(3))),
    "gradient": ("b,3 3,c", jax.grad(lambda x, w: jnp.sum(jnp.tanh(x @ w)), (0, 1))),
}  # fmt: skip
SIZES = ({"a": 2, "b": 3, "c": 4, "i": 2, "j": 3, "n": 5, "t": 4},
         {"a": 3, "b": 5, "c": 2, "i": 4, "j": 2, "n": 7, "t": 6})  # fmt: skip
