"""Keras' attention of sizes that kernels are for: programs of TPUs and GPUs, and values here."""

import functools

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from tests.attention_kernels import assert_kernels, binds
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

RNG = np.random.default_rng(5)
LENGTH, WIDE = 256, 32
X, Y = (RNG.standard_normal((2, n, WIDE)).astype(np.float32) for n in (LENGTH, 320))
KEYS = np.arange(320) < np.array([[200], [320]])
BLIND = KEYS & np.array([[False], [True]])  # nothing of the first
PAIRS = RNG.random((2, LENGTH, LENGTH)) > 0.2
MHA = lambda **how: keras.layers.MultiHeadAttention(2, 16, **how)
GQA = lambda **how: keras.layers.GroupQueryAttention(16, 4, 2, **how)
BOTH, DENSE, NONE = {}, {"dense": ("cuda",)}, {"platforms": ()}
mask = lambda keys: keys[:, None, :LENGTH]
# layer, call, mask, what is looked at
CASES = {
    "self": (MHA, lambda f, x, m: f(x, x), None, BOTH),
    "causal": (MHA, lambda f, x, m: f(x, x, use_causal_mask=True), None, BOTH),
    "keys": (MHA, lambda f, x, m: f(x, x, attention_mask=m), mask(KEYS), DENSE),
    "keys, causal": (
        MHA, lambda f, x, m: f(x, x, attention_mask=m, use_causal_mask=True), mask(KEYS), DENSE,
    ),
    "nothing": (MHA, lambda f, x, m: f(x, x, attention_mask=m), mask(BLIND), DENSE),
    "pairs": (MHA, lambda f, x, m: f(x, x, attention_mask=m), PAIRS, NONE),
    "padding": (MHA, lambda f, x, m: f(x, x, key_mask=m), KEYS[:, :LENGTH], DENSE),
    "cross": (MHA, lambda f, x, m: f(x, tf.constant(Y), attention_mask=m), KEYS[:, None], DENSE),
    "groups": (GQA, lambda f, x, m: f(x, x, use_causal_mask=True), None, BOTH),
    "groups, nothing": (
        GQA, lambda f, x, m: f(x, x, attention_mask=m, use_causal_mask=True), mask(BLIND), NONE,
    ),
    "attention": (
        keras.layers.Attention, lambda f, x, m: f([x, x], use_causal_mask=True), None, NONE,
    ),
}  # fmt: skip
# What stays as it is written.
FORMULAS = {
    "scores": lambda f, x: f(x, x, return_attention_scores=True),
    "dropout": lambda f, x: f(x, x, training=True),
    "small": lambda f, x: f(x[:, :64], x[:, :64]),
}


def built(make, call, *args):
    """Returns the model's function of x, and TensorFlow's."""
    layer = make()
    function = tf.function(lambda x, *rest: call(layer, x, *rest))
    function(*args)
    model = anyjax.from_tensorflow(function, *args)
    return model, lambda x, *rest: model.apply(model.params, x, *rest), function


@pytest.mark.parametrize("case", CASES)
def test_operator(case):
    make, call, m, kinds = CASES[case]
    args = (X,) if m is None else (X, m)
    taken = call if m is not None else lambda f, x: call(f, x, None)
    _, apply, function = built(make, taken, *args)
    assert binds(apply, *args)
    keras.config.set_dtype_policy("bfloat16")
    try:
        if kinds is not NONE:
            _, narrow, _ = built(make, taken, tf.cast(X, tf.bfloat16), *args[1:])
            assert_kernels(narrow, *args, **kinds)
    finally:
        keras.config.set_dtype_policy("float32")
    want = function(*args)
    assert_close(jax.jit(apply)(*args), want.numpy(), reduction=LENGTH)
    along = RNG.standard_normal(want.shape).astype(np.float32)
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = tf.reduce_sum(function(x, *args[1:]) * along)
    got = jax.jit(jax.grad(lambda x: (apply(x, *args[1:]) * along).sum()))(X)
    assert_close(got, tape.gradient(total, x).numpy(), reduction=16 * LENGTH)


@pytest.mark.parametrize("case", FORMULAS)
def test_formula(case):
    make = lambda: MHA(dropout=0.5 if case == "dropout" else 0.0)
    model, _, function = built(make, FORMULAS[case], X)
    key, how = jax.random.key(0), {"mutable": True}
    assert not binds(lambda x: model.apply(model.params, x, rng=key, **how), X)
    if case != "dropout":
        got, want = model(X), function(X)
        assert_close(jax.tree.leaves(got)[0], tf.nest.flatten(want)[0].numpy(), reduction=LENGTH)


def test_a_saved_model(tmp_path):
    layer = MHA()
    module = tf.Module()
    module.layer = layer
    module.f = tf.function(lambda x: layer(x, x, use_causal_mask=True))
    want = module.f(tf.constant(X))
    tf.saved_model.save(module, str(tmp_path), signatures=module.f.get_concrete_function(
        tf.TensorSpec([None, None, WIDE])))  # fmt: skip
    model = anyjax.from_tensorflow(tmp_path)
    apply = lambda x: jax.tree.leaves(model.apply(model.params, x))[0]
    assert binds(apply, X)
    assert_close(jax.jit(apply)(X), want.numpy(), reduction=LENGTH)


def test_layers_roll():
    layers = [MHA() for _ in range(4)]
    function = tf.function(lambda x: functools.reduce(lambda x, f: x + f(x, x), layers, x))
    function(X)
    model = anyjax.from_tensorflow(function, X)
    rolled = anyjax.transforms.roll(model, X)
    text = str(jax.make_jaxpr(lambda x: rolled.apply(rolled.params, x))(X))
    assert (text.count(" attention["), text.count("scan[")) == (1, 1)
    assert_close(rolled(X), function(X).numpy(), reduction=4 * LENGTH)
