"""Attention of sizes that kernels are for: programs of TPUs and GPUs, and values here."""

import jax
import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import anyjax
from tests.attention_kernels import assert_kernels, binds, narrow
from tests.onnx.agree import normal
from tests.onnx.with_onnxruntime import node, run
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

RNG = np.random.default_rng(2)
LENGTH, HEADS, GROUPS, SIZE = 256, 4, 2, 16
MS = "com.microsoft::"
ENDS = np.array([200, 256], np.int32)
COUNT = ENDS.astype(np.int64)
KEYS = (np.arange(LENGTH) < ENDS[:, None]).astype(np.int32)
LEFT = KEYS[:, ::-1].copy()  # pads before the text
ONE = KEYS * np.array([[0], [1]], np.int32)  # text of which nothing is seen
PAIRS = np.tri(LENGTH, k=1) > 0
heads = lambda count: normal(2, count, LENGTH, SIZE)
flat = lambda count: normal(2, LENGTH, count * SIZE)
EVERY = {"Q": heads(HEADS), "K": heads(HEADS), "V": heads(HEADS)}
SHARED = {"Q": heads(HEADS), "K": heads(GROUPS), "V": heads(GROUPS)}
FLAT = {x: flat(HEADS) for x in "qkv"}
PACKED = {
    "x": flat(HEADS),
    "w": normal(HEADS * SIZE, 3 * HEADS * SIZE) / 8,
    "b": normal(3 * HEADS * SIZE),
}
GROUPED = {"q": flat(HEADS), "k": flat(GROUPS), "v": flat(GROUPS), "pk": None, "pv": None}
GROUPED |= {"lengths": ENDS * 0 + LENGTH - 1, "total": np.array(LENGTH, np.int32)}
MORE = dict.fromkeys(("cos", "sin", "positions"))
COUNTS = {"num_heads": HEADS, "kv_num_heads": GROUPS}
PAST = {"past_key": normal(2, GROUPS, 64, SIZE), "past_value": normal(2, GROUPS, 64, SIZE)}
BOTH, DENSE, TPU = dict(), dict(dense=("cuda",)), dict(platforms=("tpu",))
CASES = {
    "all": ("Attention", EVERY, {}, BOTH),
    "causal": ("Attention", SHARED, {"is_causal": 1}, BOTH),
    "behind a past": ("Attention", SHARED | {"m": None} | PAST, {"is_causal": 1}, TPU),
    "softcap": ("Attention", SHARED, {"softcap": 2.0, "is_causal": 1}, TPU),
    "before": ("Attention", EVERY, {"left_window_size": 9, "is_causal": 1}, BOTH),
    "around": ("Attention", EVERY, {"left_window_size": 9, "right_window_size": 5}, TPU),
    "behind": ("Attention", SHARED, {"left_window_size": 9}, TPU),
    "padding": ("Attention", SHARED | {"m": KEYS[:, None, None] > 0}, {}, DENSE),
    "lengths": ("Attention", SHARED | {"m": None, "pk": None, "pv": None, "n": COUNT}, {}, DENSE),
    "ends": (MS + "Attention", PACKED | {"m": ENDS}, {"num_heads": HEADS}, DENSE),
    "one way": (MS + "Attention", PACKED, {"num_heads": HEADS, "unidirectional": 1}, BOTH),
    "keys": (
        MS + "MultiHeadAttention", FLAT | {"b": None, "m": LEFT}, {"num_heads": HEADS}, DENSE,
    ),
    "groups": (MS + "GroupQueryAttention", GROUPED, COUNTS, BOTH),
    "local": (MS + "GroupQueryAttention", GROUPED, COUNTS | {"local_window_size": 30}, BOTH),
    "capped": (MS + "GroupQueryAttention", GROUPED, COUNTS | {"softcap": 2.0}, TPU),
}  # fmt: skip
# What no kernel of a TPU takes; those that have the operator compute rows in blocks there.
FORMULAS = {
    "pairs": ("Attention", SHARED | {"m": PAIRS}, {}, True),
    "one way, padded": (
        MS + "MultiHeadAttention", FLAT | {"b": None, "m": LEFT},
        {"num_heads": HEADS, "unidirectional": 1}, True,
    ),
    "nobody, many": (
        MS + "MultiHeadAttention", FLAT | {"b": None, "m": ONE},
        {"num_heads": HEADS, "mask_filter_value": -5.0}, True,
    ),
    "sink": (
        MS + "GroupQueryAttention", GROUPED | MORE | {"add": None, "sink": normal(HEADS)}, COUNTS,
        False,
    ),
}  # fmt: skip
# Queries that see no key at all.
BLIND = {
    value: (
        MS + "MultiHeadAttention", FLAT | {"b": None, "m": ONE},
        {"num_heads": HEADS, "mask_filter_value": value},
    )
    for value in (-10000.0, float(np.finfo(np.float32).min))
}  # fmt: skip


def built(op, inputs, how):
    """Returns the model, and a function of its first input."""
    constants = tuple(x for x in inputs if x == "total")
    proto = node(op, inputs, constants=constants, opsets={"": 25}, **how)
    model = anyjax.from_onnx(proto)
    names = [x.name for x in proto.graph.input]
    apply = lambda x, rest: model.apply(model.params, **{names[0]: x}, **rest)
    return proto, apply, inputs[names[0]], {name: inputs[name] for name in names[1:]}


def assert_right(op, inputs, how, rtol=None):
    """Compares values with onnxruntime or ONNX itself, and a derivative with differences."""
    proto, apply, x, rest = built(op, inputs, how)
    if op == "Attention":  # onnxruntime has no windows, nor masks that broadcast
        given = {x.name: inputs[x.name] for x in proto.graph.input}
        want = ReferenceEvaluator(proto).run(None, given)
    else:
        want = run(proto, inputs)
    assert_close(jax.jit(apply)(x, rest), want[0], reduction=LENGTH, rtol=rtol)
    along = normal(*want[0].shape)
    value = jax.jit(lambda x: (apply(x, rest) * along).sum())
    got = jax.grad(value)(x)
    step = 1e-2 * normal(*x.shape)
    ends = [value(x + sign * step) for sign in (1, -1)]
    assert_close((got * step).sum(), (ends[0] - ends[1]) / 2, rtol=2e-2)


@pytest.mark.parametrize("case", CASES)
def test_kernels(case):
    op, inputs, how, kinds = CASES[case]
    _, *call = built(op, narrow(inputs), how)
    assert_kernels(*call, **kinds)
    assert_right(op, inputs, how)


@pytest.mark.parametrize("case", FORMULAS)
def test_formulas(case):
    *call, operator = FORMULAS[case]
    _, apply, x, rest = built(*call)
    assert binds(apply, x, rest) == operator
    assert_right(*call)


@pytest.mark.parametrize("value", BLIND)
def test_queries_without_keys_see_as_onnxruntime_has_it(value):
    _, apply, x, rest = built(*BLIND[value])
    assert binds(apply, x, rest)
    assert_right(*BLIND[value], rtol=5e-3)


@pytest.mark.parametrize("mode", range(4))
def test_scores_that_are_asked_for(mode):
    how = {
        "qk_matmul_output_mode": mode,
        "softcap": 2.0 if mode else 0.0,
        "is_causal": 1,
        "opsets": {"": 25},
    }
    proto = node("Attention", SHARED, 4, **how)
    wanted = ReferenceEvaluator(proto).run(None, SHARED)
    got = anyjax.from_onnx(proto)(**SHARED)
    assert_close(list(got.values()), wanted, reduction=LENGTH)
