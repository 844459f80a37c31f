"""Control flow and small models."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.conformance.stablehlo_cases.arguments import lines


def step(carry, x):
    return jnp.tanh(carry * 0.9 + x), carry * x


def nested(x):
    """A loop in a loop, with a branch inside."""

    def inner(i, c):
        return lax.cond(i % 2 == 0, lambda v: v * 1.1, lambda v: v - 0.1, c)

    return lax.fori_loop(0, 3, lambda i, c: lax.fori_loop(0, 4, inner, c) + i, x)


def until(x):
    """Runs as often as the values say."""
    return lax.while_loop(lambda v: jnp.sum(v) < 50.0, lambda v: v * 1.7 + 0.1, x)


def collatz(n):
    go = lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1)
    return lax.while_loop(lambda s: s[0] > 1, go, (n, 0))


FLOW = [
    ("scan", "f3 f5,3", lambda c, xs: lax.scan(step, c, xs)),
    ("scan_reverse", "f3 f5,3", lambda c, xs: lax.scan(step, c, xs, reverse=True)),
    ("scan_unroll", "f3 f6,3", lambda c, xs: lax.scan(step, c, xs, unroll=2)),
    ("scan_length", "f3", lambda c: lax.scan(lambda a, _: (a * 1.1, a.sum()), c, None, 7)),
    ("scan_tree", "f3 f5,3 s5", lambda c, xs, i: lax.scan(
        lambda s, x: ({"a": s["a"] + x[0], "n": s["n"] + x[1]}, s["a"] * s["n"]),
        {"a": c, "n": jnp.int32(0)}, (xs, i))),
    ("scan_nested", "f3 f4,3", lambda c, xs: lax.scan(
        lambda a, x: (lax.scan(lambda b, _: (jnp.sin(b + x), None), a, None, 3)[0], a), c, xs)),
    ("scan_cond", "f f6", lambda c, xs: lax.scan(
        lambda a, x: (lax.cond(x > 0, lambda: a + x, lambda: a * x), a), c, xs)),
    ("fori", "f4", lambda x: lax.fori_loop(2, 9, lambda i, c: c * 0.9 + i, x)),
    ("fori_index", "f6", lambda x: lax.fori_loop(0, 6, lambda i, c: c.at[i].multiply(c[i - 1]), x)),
    ("fori_traced", "f4 j", lambda x, n: lax.fori_loop(0, n + 2, lambda i, c: jnp.sin(c) + i, x)),
    ("while_data", "p4", until),
    ("while_int", "i", collatz),
    ("while_counter", "f4", lambda x: lax.while_loop(
        lambda s: s[0] < 5, lambda s: (s[0] + 2, jnp.sin(s[1])), (0, x))),
    ("while_down", "f4", lambda x: lax.while_loop(
        lambda s: s[1] > 0, lambda s: (s[0] * 1.2, s[1] - 1), (x, 6))[0]),
    ("while_two", "f4", lambda x: lax.while_loop(
        lambda s: (s[0] < 6) & (s[1].sum() < 1e9), lambda s: (s[0] + 1, s[1] * 1.1), (0, x))[1]),
    ("nested", "f3", nested),
    ("cond", "f4 b", lambda x, b: lax.cond(b, jnp.sin, jnp.cos, x)),
    ("cond_value", "f4", lambda x: lax.cond(x.sum() > 0, lambda v: v**2, lambda v: -v, x)),
    ("cond_nested", "f4 b b", lambda x, a, b: lax.cond(
        a, lambda v: lax.cond(b, jnp.sin, jnp.cos, v), lambda v: v * 2, x)),
    ("cond_tree", "f4 b", lambda x, b: lax.cond(
        b, lambda: {"a": x, "b": x[0]}, lambda: {"a": -x, "b": x.sum()})),
    ("switch", "f4 s", lambda x, i: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x)),
    ("switch_const", "f4", lambda x: lax.switch(1, [jnp.sin, jnp.cos], x)),
    ("map", "f5,3", lambda xs: lax.map(lambda x: x * x.sum(), xs)),
    ("map_batched", "f6,3", lambda xs: lax.map(lambda x: jnp.sin(x), xs, batch_size=4)),
    ("associative_scan", "f7,3", lambda x: lax.associative_scan(jnp.multiply, x)),
    ("associative_pair", "q7 f7", lambda a, b: lax.associative_scan(
        lambda s, t: (s[0] * t[0], s[1] * t[0] + t[1]), (a, b), reverse=True)),
    ("checkpoint", "f4", jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))),
    ("custom_vjp_inside", "f4", jax.grad(lambda x: jnp.sum(jax.nn.relu(x) * x))),
    ("grad_of_scan", "f3 f5,3", jax.grad(lambda c, xs: lax.scan(step, c, xs)[0].sum(), (0, 1))),
    ("hessian", "f3", jax.hessian(lambda x: jnp.sum(jnp.sin(x) * x[0]))),
    ("jacfwd", "f3", jax.jacfwd(lambda x: jnp.tanh(x) * x.sum())),
    ("vmap_of_while", "p4", jax.vmap(lambda x: lax.while_loop(
        lambda v: v < 9.0, lambda v: v * 1.7, x))),
    ("newton", "p", lambda a: lax.fori_loop(0, 8, lambda _, x: x - (x * x - a) / (2 * x), a)),
    ("ode", "f2", lambda y: lax.fori_loop(
        0, 10, lambda _, s: s + 0.1 * jnp.stack([s[1], -jnp.sin(s[0])]), y)),
    ("inner_jit", "f4", lambda x: jax.jit(jnp.sin)(x) + jax.jit(lambda y: jnp.cos(y) * x)(x)),
]  # fmt: skip


def mlp(x, *params):
    for w, b in zip(params[::2], params[1::2]):
        x = jax.nn.gelu(x @ w + b)
    return x


def norm(x, scale):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def transformer(ids, table, qkv, out, up, down, scale):
    """One block with rotary positions and a causal mask, from token ids to logits."""
    x = table[ids]
    length, width = x.shape
    angle = jnp.arange(length)[:, None] * 0.1 ** jnp.arange(width // 4)[None]
    rotate = lambda t: jnp.concatenate(
        [t[..., ::2] * jnp.cos(angle) - t[..., 1::2] * jnp.sin(angle),
         t[..., ::2] * jnp.sin(angle) + t[..., 1::2] * jnp.cos(angle)], -1)  # fmt: skip
    heads = (norm(x, scale) @ qkv).reshape(length, 3, 2, width // 2).transpose(1, 2, 0, 3)
    q, k, v = rotate(heads[0]), rotate(heads[1]), heads[2]
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / np.float32(width // 2) ** 0.5
    mask = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9))
    mixed = jnp.einsum("hqk,hkd->qhd", weights, v).reshape(length, width)
    x = x + mixed @ out
    x = x + jax.nn.silu(norm(x, scale) @ up) @ down
    return x @ table.T


def resnet_block(x, k1, k2, skip, scale, shift):
    """Two convolutions with the statistics of the batch, and a strided way past them."""

    def batch_norm(y):
        mean, variance = y.mean((0, 2, 3), keepdims=True), y.var((0, 2, 3), keepdims=True)
        spread = (y - mean) / jnp.sqrt(variance + 1e-5)
        return spread * scale[:, None, None] + shift[:, None, None]

    conv = lambda v, k, stride: lax.conv_general_dilated(v, k, (stride, stride), "SAME")
    y = jax.nn.relu(batch_norm(conv(x, k1, 2)))
    return jax.nn.relu(batch_norm(conv(y, k2, 1)) + conv(x, skip, 2))


def lstm(xs, w, u, b):
    def cell(state, x):
        h, c = state
        i, f, g, o = jnp.split(x @ w + h @ u + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((xs.shape[1], u.shape[0]))
    return lax.scan(cell, (zero, zero), xs)


def training_step(w, b, x, y):
    """A gradient inside of what is exported."""
    loss = lambda p: jnp.mean((jnp.tanh(x @ p[0] + p[1]) - y) ** 2)
    value, (gw, gb) = jax.value_and_grad(loss)((w, b))
    return value, w - 0.1 * gw, b - 0.1 * gb


def kalman(z, m):
    def update(state, z):
        x, p = state
        gain = p @ jnp.linalg.inv(p + m)
        return (x + gain @ (z - x), p - gain @ p + 0.1 * jnp.eye(2)), x

    return lax.scan(update, (jnp.zeros(2), jnp.eye(2)), z)


MODELS = [
    ("mlp", "f5,4 f4,8 f8 f8,3 f3", mlp),
    ("transformer", "i6 f9,8 f8,24 f8,8 f8,16 f16,8 p8", transformer, 1024),
    ("resnet_block", "f2,3,8,8 f4,3,3,3 f4,4,3,3 f4,3,1,1 p4 f4", resnet_block, 4096),
    ("lstm", "f5,2,3 f3,16 f4,16 f16", lstm, 256),
    ("training_step", "f4,3 f3 f8,4 f8,3", training_step, 256),
    ("kalman", "f5,2 m2,2", kalman, 4096),
    ("greedy_decoding", "j1 f8,8", lambda i, w: lax.scan(
        lambda s, _: (jnp.argmax(w[s], -1).astype(jnp.int32), s), i, None, 6)),
    ("pooling", "f1,8,8,2", lambda x: lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").mean((1, 2))),
]  # fmt: skip

# With 64-bit dtypes on.
WIDE = [
    ("sin", "d3", jnp.sin), ("matmul", "d3,4 d4,2", jnp.matmul), ("sort", "d9", jnp.sort),
    ("fft", "d8", jnp.fft.fft), ("solve", "d3,3 d3", jnp.linalg.solve, 10**4),
    ("eigh", "d3,3", lambda x: jnp.linalg.eigh(x @ x.T), 10**5), ("cumsum", "d9", jnp.cumsum),
    ("svd", "d4,3", lambda x: jnp.linalg.svd(x, full_matrices=False), 10**5),
    ("erf", "d4", jax.scipy.special.erf), ("erf_inv", "u4", lambda x: lax.erf_inv(x * 1.0)),
    ("lgamma", "p4", lambda x: lax.lgamma(x.astype(float))), ("softmax", "d3,4", jax.nn.softmax),
    ("normal", "k", lambda k: jax.random.normal(k, (4,))),
    ("randint", "k", lambda k: jax.random.randint(k, (4,), 0, 2**40)),
    ("bits64", "k", lambda k: jax.random.bits(k, (4,), jnp.uint64)),
    ("ints", "s6", lambda x: x.astype(jnp.int64) * 2**33 + 1),
    ("complex", "d4 d4", lambda a, b: jnp.exp(a + 1j * b)), ("asin", "u4", jnp.arcsin),
    ("scan", "d3 d5,3", lambda c, xs: lax.scan(step, c, xs)), ("tan", "d4", jnp.tan),
    ("scatter", "d6 j4 d4", lambda x, i, u: x.at[i].add(u)), ("bessel", "d4", lax.bessel_i1e),
]  # fmt: skip


def wide():
    found = lines("x64", WIDE)
    return {name: case._replace(x64=True) for name, case in found.items()}


CASES = lines("flow", FLOW) | lines("model", MODELS) | wide()
