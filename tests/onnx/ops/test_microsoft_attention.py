"""Attention of onnxruntime: masks, pasts, groups of heads, rotary positions and caches."""

import jax
import numpy as np
import pytest

import anyjax
from anyjax.errors import Unsupported
from tests.onnx.agree import normal as random
from tests.onnx.with_onnxruntime import assert_agrees, converted, node, run
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=3)

MS = "com.microsoft::"
BATCH, LENGTH, HEADS, SIZE = 2, 5, 4, 16
WIDTH = HEADS * SIZE
RNG = np.random.default_rng(1)
ones = lambda *shape: (RNG.random(shape) < 0.7).astype(np.int32)
MASKS = {
    "none": None,
    "ends": np.array([3, 5], np.int32),
    "bounds": np.array([3, 5, 1, 0], np.int32),
    "keys": ones(BATCH, LENGTH),
    "queries": ones(BATCH, LENGTH, LENGTH),
}
INPUTS = {"x": random(BATCH, LENGTH, WIDTH), "w": random(WIDTH, 3 * WIDTH) / 8}
INPUTS["bias"] = random(3 * WIDTH)


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("mask", MASKS)
def test_attention(mask, unidirectional):
    inputs = INPUTS | {"mask": MASKS[mask]}
    how = dict(num_heads=HEADS, unidirectional=unidirectional)
    assert_agrees(MS + "Attention", inputs, 2, reduction=256, **how)


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention_with_a_past(unidirectional):
    mask = ones(BATCH, LENGTH + 3)
    inputs = INPUTS | {"mask": mask, "past": random(2, BATCH, HEADS, 3, SIZE)}
    how = dict(num_heads=HEADS, unidirectional=unidirectional, scale=0.3)
    assert_agrees(MS + "Attention", inputs, 2, reduction=256, **how)


def test_attention_with_a_bias_and_widths():
    inputs = INPUTS | {"m": None, "p": None, "add": random(1, HEADS, LENGTH, LENGTH)}
    assert_agrees(MS + "Attention", inputs, reduction=256, num_heads=HEADS)
    widths = [WIDTH // 2, WIDTH // 2, WIDTH]
    inputs = {"x": INPUTS["x"], "w": INPUTS["w"][:, : 2 * WIDTH], "b": random(2 * WIDTH)}
    how = dict(num_heads=HEADS, qkv_hidden_sizes=widths)
    assert_agrees(MS + "Attention", inputs, reduction=256, **how)


def test_mask_of_all_positions():
    most = ones(BATCH, 1, 8, 8)
    outputs = [
        converted(node(MS + "Attention", inputs, num_heads=HEADS), inputs)[0]
        for inputs in (INPUTS | {"m": most}, INPUTS | {"m": most[:, 0, :LENGTH, :LENGTH]})
    ]
    assert_close(*outputs)


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("case", ["plain", "bias", "ends", "keys", "queries", "add", "past"])
def test_multi_head_attention(case, unidirectional):
    names = ["q", "k", "v", "bias", "mask", "add", "past_key", "past_value"]
    inputs = dict.fromkeys(names) | {x: random(BATCH, LENGTH, WIDTH) for x in "qkv"}
    past = {x: random(BATCH, HEADS, 3, SIZE) for x in names[-2:]}
    inputs |= {
        "bias": {"bias": random(3 * WIDTH)},
        "add": {"add": random(BATCH, HEADS, LENGTH, LENGTH)},
        "past": past,
    }.get(case, {"mask": MASKS.get(case)})
    how = dict(num_heads=HEADS, unidirectional=unidirectional)
    outputs = 3 if case == "past" else 1
    assert_agrees(MS + "MultiHeadAttention", inputs, outputs, reduction=256, **how)


def test_multi_head_attention_over_keys_with_heads():
    key, value = random(2, BATCH, HEADS, 6, SIZE)
    inputs = {"q": random(BATCH, LENGTH, WIDTH), "k": key, "v": value, "bias": random(3 * WIDTH)}
    assert_agrees(MS + "MultiHeadAttention", inputs, reduction=256, num_heads=HEADS)


def test_packed_projections():
    """onnxruntime's CPU lacks them."""
    q, k, v = random(3, BATCH, LENGTH, WIDTH)
    heads = lambda *x: np.stack([y.reshape(BATCH, LENGTH, HEADS, SIZE) for y in x], 3)
    attend = lambda inputs: converted(
        node(MS + "MultiHeadAttention", inputs, num_heads=HEADS), inputs
    )
    want = attend({"q": q, "k": k, "v": v})
    assert_close(attend({"q": heads(q, k, v)}), want, reduction=64)
    assert_close(attend({"q": q, "k": heads(k, v)}), want, reduction=64)


GROUPS = 2
NAMES = (
    "query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos",
    "sin", "positions", "add", "sink",
)  # fmt: skip


def grouped(length, past, lengths, total, rotary=False, packed=False, **more):
    """Returns the inputs of a GroupQueryAttention."""
    narrow = GROUPS * SIZE
    query = WIDTH + 2 * narrow if packed else WIDTH
    inputs = dict.fromkeys(NAMES) | {"query": random(BATCH, length, query)}
    if not packed:
        inputs |= {x: random(BATCH, length, narrow) for x in ("key", "value")}
    if past is not None:
        inputs |= {x: random(BATCH, GROUPS, past, SIZE) for x in NAMES[3:5]}
    if rotary:
        inputs |= {x: random(32, SIZE // 2) for x in ("cos", "sin")}
    inputs["seqlens_k"] = np.array(lengths, np.int32) - 1
    inputs["total_sequence_length"] = np.array(total, np.int32)
    return inputs | more


def assert_same_group(inputs, **how):
    """Compares the places that are in use; beyond them onnxruntime leaves what was there."""
    how |= dict(num_heads=HEADS, kv_num_heads=GROUPS, constants=("total_sequence_length",))
    how |= dict(do_rotary=1) if inputs["cos"] is not None else {}
    model = node(MS + "GroupQueryAttention", inputs, 3, **how)
    pairs = zip(converted(model, inputs), run(model, inputs), strict=True)
    length, total = inputs["query"].shape[1], int(inputs["total_sequence_length"])
    for i, (got, want) in enumerate(pairs):
        assert got.shape == want.shape
        for row, last in enumerate(inputs["seqlens_k"]):
            count = min(length, last + 1) if length == total else length
            here = (row, slice(count)) if i == 0 else (row, slice(None), slice(last + 1))
            assert_close(np.asarray(got[here]), want[here], reduction=256)


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [
        (5, None, [5, 5], 5), (5, 0, [5, 5], 5), (5, 0, [3, 5], 5),
        (1, 7, [8, 8], 8), (1, 7, [5, 8], 8), (1, 12, [5, 8], 8),
    ],
    ids=["prompt", "empty past", "padded", "step", "padded step", "room"],
)  # fmt: skip
def test_group_query_attention(sizes, rotary):
    assert_same_group(grouped(*sizes, rotary=rotary))


@pytest.mark.parametrize(
    "how",
    [
        dict(local_window_size=3), dict(softcap=2.0), dict(smooth_softmax=1), dict(scale=0.2),
        dict(causal=0),
    ],
    ids=lambda x: next(iter(x)),
)  # fmt: skip
def test_options_of_groups(how):
    assert_same_group(grouped(6, None, [6, 6], 6), **how)
    assert_same_group(grouped(6, None, [6, 6], 6, packed=True, rotary=True), **how)


def test_window_of_a_step():
    assert_same_group(grouped(1, 7, [8, 6], 8), local_window_size=3)


def test_inputs_of_groups():
    assert_same_group(grouped(6, None, [6, 6], 6, rotary=True), rotary_interleaved=1)
    assert_same_group(grouped(6, None, [6, 6], 6, add=random(BATCH, HEADS, 6, 6)))
    assert_same_group(grouped(6, None, [6, 6], 6, sink=random(HEADS)))


@pytest.mark.parametrize(
    "op, inputs, how",
    [
        ("Attention", INPUTS, dict(do_rotary=1)),
        ("GroupQueryAttention", grouped(5, None, [5, 5], 5), dict(kv_num_heads=2, qk_output=1)),
        ("MultiHeadAttention", dict(zip("abcdefghi", [INPUTS["x"]] * 9)), {}),
    ],
)
def test_what_is_refused(op, inputs, how):
    constants = tuple(name for name in inputs if name.startswith("total"))
    model = node(MS + op, inputs, num_heads=HEADS, constants=constants, **how)
    with pytest.raises(Unsupported, match=op):
        converted(model, inputs)


def test_gradients():
    inputs = grouped(5, None, [5, 5], 5, rotary=True)
    how = dict(num_heads=HEADS, kv_num_heads=GROUPS, do_rotary=1)
    model = node(MS + "GroupQueryAttention", inputs, constants=("total_sequence_length",), **how)
    rest = {x.name: inputs[x.name] for x in model.graph.input if x.name != "query"}
    model = anyjax.from_onnx(model)
    attend = lambda q: model.apply(model.params, query=q, **rest).sum()
    got = jax.grad(attend)(inputs["query"])
    step = 1e-2 * random(*got.shape)
    ends = [attend(inputs["query"] + sign * step) for sign in (1, -1)]
    assert_close((got * step).sum(), (ends[0] - ends[1]) / 2, rtol=2e-2)
