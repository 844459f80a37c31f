"""Attention as exporters write it in ONNX: programs of TPUs and GPUs, and values here."""

import re

import jax
import ml_dtypes
import numpy as np
import pytest

import anyjax
from tests.attention_kernels import assert_kernels, binds
from tests.onnx.agree import agree, model, normal
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

LENGTH = 256
LOWEST = float(ml_dtypes.finfo(ml_dtypes.bfloat16).min)
QKV = tuple(normal(2, LENGTH, 32) for _ in range(3))
KEYS = np.arange(LENGTH) < np.array([200, LENGTH])[:, None, None, None]
PAIRS = np.tri(LENGTH) > 0
HEADS = """
  hq = Reshape(q, split)  tq = Transpose<perm = [0, 2, 1, 3]>(hq)
  hk = Reshape(k, split)  tk = Transpose<perm = [0, 2, 3, 1]>(hk)
  hv = Reshape(v, split)  tv = Transpose<perm = [0, 2, 1, 3]>(hv)
"""
AFTER = """
  w = Softmax<axis = -1>(masked)
  o = MatMul(w, tv)  to = Transpose<perm = [0, 2, 1, 3]>(o)  y = Reshape(to, join)
"""
CONSTANTS = {
    "split": np.array([0, 0, 2, 16]), "join": np.array([0, 0, 32]), "root": np.float32(4),
    "part": np.float32(0.5), "low": np.float32(LOWEST), "zero": np.float32(0), "one": np.int64(1),
    "triangle": np.where(PAIRS, 0, LOWEST)[None, None].astype(np.float32),
    "pairs": PAIRS[None, None],
}  # fmt: skip
DIVIDED = "s = MatMul(tq, tk)  d = Div(s, root)"
TRIANGLE = """
  n = Constant<value = int64[2] {256, 256}>()  ones = Expand(one, n)
  lower = Trilu<upper = 0>(ones)  below = Cast<to = 9>(lower)
"""
BOTH, DENSE, NONE = {}, {"dense": ("cuda",)}, {"platforms": ()}
# nodes between heads and softmax, type of the mask, the mask, what is looked at
CASES = {
    "no mask": (DIVIDED + "masked = Identity(d)", "", (), BOTH),
    "scaled on both sides": (
        "a = Mul(tq, part)  b = Mul(tk, part)  masked = MatMul(a, b)", "", (), BOTH,
    ),
    "added": (DIVIDED + "masked = Add(d, m)", "float[2,1,1,256] m",
              (np.where(KEYS, 0, LOWEST).astype(np.float32),), NONE),
    "added choice": (
        DIVIDED + "c = Where(m, zero, low)  masked = Add(d, c)", "bool[2,1,1,256] m", (KEYS,),
        NONE,
    ),
    "chosen": (DIVIDED + "masked = Where(m, d, low)", "bool[2,1,1,256] m", (KEYS,), DENSE),
    "nothing": (
        DIVIDED + "masked = Where(m, d, low)", "bool[2,1,1,256] m",
        (KEYS & (np.arange(2) > 0)[:, None, None, None],), DENSE,
    ),
    "triangle": (DIVIDED + "masked = Add(d, triangle)", "", (), NONE),
    "pairs": (DIVIDED + "masked = Where(pairs, d, low)", "", (), NONE),
    "made triangle": (
        DIVIDED + TRIANGLE + "c = Where(below, zero, low) masked = Add(d, c)", "", (), BOTH,
    ),
    "chosen triangle": (DIVIDED + TRIANGLE + "masked = Where(below, d, low)", "", (), BOTH),
}  # fmt: skip


def graph(between, mask="", outputs="float[2,256,32] y", dtype=np.float32):
    """Returns a model of three inputs, and perhaps a mask."""
    inputs = "float[2,256,32] q, float[2,256,32] k, float[2,256,32] v" + (mask and ", " + mask)
    text = f"m ({inputs}) => ({outputs}) {{ {HEADS} {between} {AFTER} }}"
    used = {k: v for k, v in CONSTANTS.items() if re.search(rf"\b{k}\b", text)}
    cast = lambda x: np.asarray(x.astype(dtype) if x.dtype.kind == "f" else x)
    text = text.replace("float[", "bfloat16[") if dtype != np.float32 else text
    return model(text, weights={k: cast(v) for k, v in used.items()})


def applied(proto):
    """Returns (function of the first input, further inputs and params; params)."""
    converted = anyjax.from_onnx(proto)
    return lambda q, *rest: converted.apply(rest[-1], q, *rest[:-1]), converted.params


@pytest.mark.parametrize("case", CASES)
def test_operator(case):
    between, mask, masks, kinds = CASES[case]
    agree(graph(between, mask), *QKV, *masks, reduction=LENGTH)
    apply, params = applied(graph(between, mask))
    assert binds(apply, *QKV, *masks, params)
    if kinds is not NONE:
        narrow, weights = applied(graph(between, mask, dtype=ml_dtypes.bfloat16))
        assert_kernels(narrow, *QKV, *masks, weights, **kinds)
    along = normal(2, LENGTH, 32)
    value = jax.jit(lambda q: (apply(q, *QKV[1:], *masks, params) * along).sum())
    step = 1e-2 * normal(2, LENGTH, 32)
    ends = [value(QKV[0] + sign * step) for sign in (1, -1)]
    assert_close((jax.grad(value)(QKV[0]) * step).sum(), (ends[0] - ends[1]) / 2, rtol=2e-2)


@pytest.mark.parametrize("read", ["w", "masked", "s"])
def test_what_is_read_elsewhere_stays(read):
    outputs = f"float[2,256,32] y, float[2,2,256,256] {read}"
    converted = agree(graph(CASES["no mask"][0], outputs=outputs), *QKV, reduction=LENGTH)
    assert not binds(lambda *x: converted.apply(converted.params, *x), *QKV)


def test_another_axis_stays():
    proto = graph(CASES["no mask"][0])
    (node,) = (x for x in proto.graph.node if x.op_type == "Softmax")
    node.attribute[0].i = 2
    converted = agree(proto, *QKV, reduction=LENGTH)
    assert not binds(lambda *x: converted.apply(converted.params, *x), *QKV)
