"""Attention that is written out is the operator, and has its values and derivatives."""

from __future__ import annotations

import random
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import anyjax
from anyjax.calls.written_attention import evaluated
from tests.attention_kernels import assert_kernels, binds
from tests.tolerance import assert_close

ROWS, SOURCE, WIDTH = 130, 136, 8
PATTERN = np.arange(ROWS)[:, None] % 7 + np.arange(SOURCE) % 5 < 9  # that no limits have


def where(condition, x, y):
    """jnp.where without a call of its own, as frontends write it."""
    x, y = (jnp.asarray(v, jnp.result_type(x, y)) for v in (x, y))
    return jax.lax.select(*jnp.broadcast_arrays(condition, x, y))


def lowest(dtype):
    return jnp.finfo(dtype).min


def places(scores):
    """Rows and columns as TensorFlow's band_part has them."""
    return [jnp.cumsum(jnp.ones(scores.shape[-2:], int), i) for i in (0, 1)]


def added(low):
    """(1 - mask) times a number, added to the scores."""
    hides = lambda m, s: (1 - m.astype(s.dtype)) * jnp.asarray(low, s.dtype)
    return lambda s, m: s + hides(m.keys, s)


class Masks:
    """A mask of columns, one of pairs, of which a row sees nothing, and a bias."""

    def __init__(self, keys, pairs, bias):
        self.keys, self.pairs, self.bias = keys, pairs, bias


TRI, BELOW = (np.tri(ROWS, SOURCE, shift) > 0 for shift in (3, -1))
# Scores with masks, as they are written.
MASKS: dict[str, Callable] = {
    "none": lambda s, m: s,
    "keys": lambda s, m: where(m.keys, s, -1e9),
    "keys, lowest": lambda s, m: where(m.keys, s, lowest(s.dtype)),
    "not keys": lambda s, m: where(~m.keys | ~m.pairs, -1e4, s),
    "pairs": lambda s, m: where(m.pairs, s, -1e9),
    "twice": lambda s, m: where(m.pairs, where(m.keys, s, -1e9), -1e9),
    "infinite": lambda s, m: where(m.keys, s, -jnp.inf),
    "added": added(-1e9),
    "added -10000": added(-10000),
    "added, infinite": lambda s, m: s + where(m.keys, 0, -jnp.inf).astype(s.dtype),
    "added, lowest": lambda s, m: s + where(m.keys, 0, lowest(s.dtype)).astype(s.dtype),
    "bias": lambda s, m: s + m.bias.astype(s.dtype),
    "bias before": lambda s, m: m.bias.astype(s.dtype) + s,
    "bias, added": lambda s, m: added(-1e9)(s + m.bias.astype(s.dtype), m),
    "bias, infinite": lambda s, m: where(m.keys, s + m.bias.astype(s.dtype), -jnp.inf),
    "causal": lambda s, m: where(jnp.greater_equal(*places(s)), s, -1e9),
    "causal, keys": lambda s, m: where(jnp.greater_equal(*places(s)) & m.keys, s, -1e9),
    "causal, added": lambda s, m: s + np.where(TRI, 0, -1e9).astype(s.dtype),
    "causal, added twice": lambda s, m: added(-1e9)(s + np.where(TRI, 0, -1e9).astype(s.dtype), m),
    "causal, infinite": lambda s, m: s + np.where(TRI, 0, -np.inf).astype(s.dtype),
    "pattern": lambda s, m: where(PATTERN, s, -1e9),
    "pattern, a blind row": lambda s, m: where(BELOW, s, -1e9),
    "blind rows, added": lambda s, m: s + np.where(BELOW, 0, -1e9).astype(s.dtype),
    "zeros": lambda s, m: where(m.keys, s, -1e9),
    "no NaN": lambda s, m: where(m.keys, s, -jnp.inf),
    "no NaN, finite": lambda s, m: where(m.keys, s, -1e9),
}  # fmt: skip
AFTER = {
    "zeros": lambda w, m: where(m.keys, w, 0),
    "no NaN": lambda w, m: where(jnp.isnan(w), 0, w),
    "no NaN, finite": lambda w, m: where(jnp.isnan(w), 0, w),
}
# Scores with masks that the operator has not, and what is done to weights.
NEAR: dict[str, Callable] = {
    "a bias of what is replaced": lambda s, m: where(m.keys, s, -1e9) + m.bias.astype(s.dtype),
    "what is replaced is added to": lambda s, m: where(m.pairs, added(-1e9)(s, m), -1e9),
    "two numbers": lambda s, m: where(m.pairs, where(m.keys, s, -1e9), -2e9),
    "a number that counts": lambda s, m: where(m.keys, s, -5.0),
    "no constant": lambda s, m: where(m.pairs, s, m.bias - 1e9),
    "numbers": lambda s, m: where(m.pairs, s, np.linspace(-1e9, -2e9, SOURCE)),
    "scaled masks": lambda s, m: where(m.keys, s, -1e9) * np.array(0.5, s.dtype),
    "a cap": lambda s, m: jnp.tanh(s),
    "a scale of arrays": lambda s, m: s * m.bias.astype(s.dtype),
    "float16": lambda s, m: added(-65504)(s.astype(np.float16), m).astype(s.dtype),
    "dropped": lambda s, m: s,
    "heads": lambda s, m: s,
    "zeros elsewhere": lambda s, m: where(m.keys, s, -1e9),
    "zeros of others": lambda s, m: s,
    "ones": lambda s, m: where(m.keys, s, -jnp.inf),
    "read twice": lambda s, m: s,
    "normalized twice": lambda s, m: s,
}
AFTER |= {
    "dropped": lambda w, m: where(m.pairs, w / 0.9, 0).astype(w.dtype),
    "heads": lambda w, m: w * m.bias.astype(w.dtype),
    "zeros elsewhere": lambda w, m: where(m.pairs, w, 0),
    "zeros of others": lambda w, m: where(m.keys, w, 0),
    "ones": lambda w, m: where(jnp.isnan(w), 1, w),
    "read twice": lambda w, m: w + 0 * w.sum().astype(w.dtype),
    "normalized twice": lambda w, m: w / w.sum(-1, keepdims=True),
}
LAYOUTS = {  # of arrays, scores, and products
    "bld": ((2,), "bld,bsd->bls", "bls,bsd->bld"),
    "bhld": ((2, 2), "bhld,bhsd->bhls", "bhls,bhsd->bhld"),
    "blhd": ((2, 2), "blhd,bshd->bhls", "bhls,bshd->blhd"),
    "keys first": ((2, 2), "bshd,blhd->bhls", "bhls,bshd->blhd"),
    "turned": ((2, 2), "bhsd,bhld->bhsl", "bhls,bhsd->bhdl"),
}


class Program:
    """An attention that is put together by chance, and its arrays."""

    def __init__(self, seed: int, kind: str):
        pick, rng = random.Random(f"{seed} {kind}"), np.random.default_rng(seed)
        self.kind, self.layout = kind, pick.choice([*LAYOUTS])
        self.scale = pick.choice(["mul", "div", "query", "both", "none"])
        self.groups = pick.choice(["none", "repeat", "broadcast"])
        self.dtype = pick.choice([jnp.float32, jnp.float32, jnp.bfloat16])
        close = 2e-3 if "-10000" in kind else 5e-5  # which leaves three digits of scores
        self.rtol = 5e-2 if self.dtype == jnp.bfloat16 else close
        self.wide = pick.random() < 0.5  # softmax in float32
        self.axes = lead = LAYOUTS[self.layout][0]
        inner = self.layout in ("blhd", "keys first")  # heads stand beside widths
        shape = lambda n, h: (2, n, h, WIDTH) if inner else (*lead[:-1], h, n, WIDTH)
        heads = lead[-1] if len(lead) > 1 else 2
        few = 1 if self.groups != "none" and len(lead) > 1 else heads
        self.head_axis = 2 if inner else 1
        shapes = shape(ROWS, heads), shape(SOURCE, few), shape(SOURCE, few)
        self.arrays = [jnp.asarray(rng.standard_normal(s), self.dtype) for s in shapes]
        ones = (1,) * (len(lead) - 1)
        keys = rng.random((2, *ones, 1, SOURCE)) > 0.3
        keys[0] &= seed % 2 > 0  # nothing of the first
        pairs = rng.random((2, *ones, ROWS, SOURCE)) > 0.3
        pairs[..., 3, :] = False
        bias = rng.standard_normal((*lead[1:], ROWS, SOURCE))
        self.arrays += map(jnp.asarray, (bias.astype(np.float32), keys, pairs))

    def heads(self, x):
        if self.groups == "none" or len(self.axes) < 2:
            return x
        if self.groups == "repeat":
            return jnp.repeat(x, 2, self.head_axis)
        lead, rest = x.shape[: self.head_axis + 1], x.shape[self.head_axis + 1 :]
        wide = jnp.broadcast_to(x.reshape(*lead, 1, *rest), (*lead, 2, *rest))
        return wide.reshape(*lead[:-1], -1, *rest)

    def __call__(self, query, key, value, bias, keys, pairs):
        masks, (_, first, last) = Masks(keys, pairs, bias), LAYOUTS[self.layout]
        key, value = self.heads(key), self.heads(value)
        root = np.array(WIDTH**0.5, query.dtype)
        query = query / root if self.scale == "query" else query
        if self.scale == "both":
            query, key = query * np.array(0.6, query.dtype), key * np.array(0.6, query.dtype)
        of = (key, query) if first[1:].startswith(("shd", "hsd")) else (query, key)
        scores = jnp.einsum(first, *of)
        scores = scores.swapaxes(-1, -2) if self.layout == "turned" else scores
        scores = scores.astype(jnp.float32) if self.wide else scores
        scores = scores * (1 / root) if self.scale == "mul" else scores
        scores = scores / root if self.scale == "div" else scores
        scores = {**MASKS, **NEAR}[self.kind](scores, masks)
        weights = jax.nn.softmax(scores, axis=-1)
        weights = AFTER.get(self.kind, lambda w, m: w)(weights, masks)
        return jnp.einsum(last, weights.astype(value.dtype), value)


def operator(function):
    """Returns a function that attends by the operator."""
    return lambda *args: evaluated(lambda: function(*args), args)


def derivatives(function, arrays):
    """Returns an attention's values, and derivatives by its first four arrays."""

    def loss(*of):
        out = function(*of, *arrays[4:]).astype(jnp.float32)
        return (out * np.cos(np.arange(out.size)).reshape(out.shape)).sum(), out

    gradients, out = jax.jit(jax.grad(loss, (0, 1, 2, 3), has_aux=True))(*arrays[:4])
    return out, gradients


@pytest.mark.parametrize("kind", MASKS)
def test_values_and_derivatives(kind):
    for seed in range(2):
        program = Program(seed, kind)
        assert binds(operator(program), *program.arrays), seed
        want, of_want = derivatives(program, program.arrays)
        got, of_got = derivatives(operator(program), program.arrays)
        assert_close(got, want, rtol=program.rtol)
        if not np.isnan(want).any():  # no derivative, or any
            assert_close(of_got, of_want, rtol=program.rtol)


@pytest.mark.parametrize("kind", NEAR)
def test_what_differs_stays(kind):
    for seed in range(2):
        program = Program(seed, kind)
        assert not binds(operator(program), *program.arrays), seed


def softmax(scores, axis=-1, total=-1):
    exp = jnp.exp(scores - scores.max(axis, keepdims=True))
    return exp / exp.sum(total, keepdims=True)


def attended(weights_of=softmax, second=lambda w: w, length=ROWS, axes=(2, 2), dtype=np.float32):
    """Attention with a softmax, and the results beside it."""
    x = jnp.asarray(np.random.default_rng(0).standard_normal((*axes, length, WIDTH)), np.float32)

    def function(x):
        weights = weights_of(x @ x.swapaxes(-1, -2))
        return weights.astype(dtype) @ x.astype(dtype), second(weights)

    return operator(function), x


# Programs beside "itself", which is the operator.
BESIDE = {
    "itself": {"second": lambda w: None},
    "returned": {},
    "read for a loss": {"second": lambda w: w.sum()},
    "columns": {"second": lambda w: None, "weights_of": lambda s: softmax(s, -2, -2)},
    "sums of columns": {"second": lambda w: None, "weights_of": lambda s: softmax(s, -1, -2)},
    "a maximum of columns": {"second": lambda w: None, "weights_of": lambda s: softmax(s, -2)},
    "short": {"second": lambda w: None, "length": 127},
    "three of batch": {"second": lambda w: None, "axes": (1, 2, 2)},
    "two dtypes": {"second": lambda w: None, "dtype": np.float16},
}


@pytest.mark.parametrize("kind", BESIDE)
def test_programs_beside_an_attention(kind):
    function, x = attended(**BESIDE[kind])
    assert binds(function, x) == (kind == "itself")


@pytest.mark.parametrize("kind", ["causal", "causal, keys", "causal, added", "causal, infinite"])
def test_triangles_are_limits(kind):
    program = Program(0, kind)
    text = str(jax.make_jaxpr(operator(program))(*program.arrays))
    assert "causal=True" in text


TRANSFORMATIONS: dict[str, Callable] = {
    "vmap": lambda f, x, *rest: jax.vmap(lambda x: f(x, *rest))(jnp.stack([x, -x])),
    "jvp": lambda f, x, *rest: jax.jvp(lambda x: f(x, *rest), (x,), (x,)),
    "checkpoint": lambda f, x, *rest: jax.checkpoint(f)(x, *rest),
}


@pytest.mark.parametrize("kind", TRANSFORMATIONS)
def test_transformations(kind):
    program = Program(0, "causal, keys")
    transformed = lambda f: jax.jit(lambda *args: TRANSFORMATIONS[kind](f, *args))
    call = transformed(operator(program))
    assert binds(call, *program.arrays)
    assert_close(call(*program.arrays), transformed(program)(*program.arrays), rtol=program.rtol)


def test_programs_are_traced_once():
    calls = []
    program = Program(0, "causal")
    for arrays in (program.arrays, [x[..., :64] for x in program.arrays]):  # with and without one
        jax.make_jaxpr(lambda *x: evaluated(lambda: calls.append(x) or x[0] * 2, x))(*arrays)
    jax.make_jaxpr(lambda *x: evaluated(lambda: calls.append(x) or program(*x), x))(*program.arrays)
    assert len(calls) == 3


def test_values_that_are_read_stay_readable():
    x = jnp.ones((ROWS, WIDTH))
    assert evaluated(lambda: float(x.sum()), [x]) == ROWS * WIDTH


def written(query, key, value, keys):
    """Attention as JAX's users write it."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(16).astype(query.dtype)
    weights = jax.nn.softmax(jnp.where(keys, scores, lowest(scores.dtype)), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value)


LENGTH = 256
KEYS = np.arange(LENGTH) < np.array([0, 200])[:, None, None, None]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_stablehlo(dtype, tmp_path):
    rng = np.random.default_rng(0)
    arrays = [jnp.asarray(rng.standard_normal((2, LENGTH, 2, 16)), dtype) for _ in range(3)]
    model = anyjax.from_stablehlo(export.export(jax.jit(written))(*arrays, KEYS).serialize())
    apply = lambda *args: model.apply({}, *args)
    assert_close(model(*arrays, KEYS), written(*arrays, KEYS), reduction=LENGTH)
    if dtype == "bfloat16":
        assert_kernels(apply, *arrays, KEYS, dense=("cuda",))
        return
    along = rng.standard_normal((2, LENGTH, 2, 16))
    of = lambda f: jax.jit(jax.grad(lambda q: (f(q, *arrays[1:], KEYS) * along).sum()))(arrays[0])
    assert_close(of(apply), of(written), reduction=LENGTH)
    model.save(tmp_path, *arrays, KEYS)
    assert_close(anyjax.load(tmp_path)(*arrays, KEYS), written(*arrays, KEYS), reduction=LENGTH)


def test_sizes_that_are_not_known_stay():
    shape = jax.ShapeDtypeStruct(export.symbolic_shape("b, 256, 2, 16"), np.float32)
    mask = jax.ShapeDtypeStruct((1, 1, 1, LENGTH), bool)
    model = anyjax.from_stablehlo(export.export(jax.jit(written))(shape, shape, shape, mask))
    x, keys = np.ones((3, LENGTH, 2, 16), np.float32), np.ones((1, 1, 1, LENGTH), bool)
    assert binds(lambda *args: model.apply({}, *args), x, x, x, keys)
    exported = export.export(jax.jit(lambda q, m: model.apply({}, q, q, q, m)))(shape, mask)
    assert_close(exported.call(x, keys), written(x, x, x, keys), reduction=LENGTH)
