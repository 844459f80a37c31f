"""Batch normalization with its statistics and gradients, and normalization by neighbours."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from tests.tensorflow.agree import assert_agrees
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=10)

RNG = np.random.default_rng(1)
raw = tf.raw_ops


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


X = random(2, 3, 4, 3) * 2 + 1
SCALE, OFFSET, MEAN, VARIANCE = random(3), random(3), random(3), random(3) ** 2 + 0.5
GIVEN = X, SCALE, OFFSET, MEAN, VARIANCE
NAMES = "x", "scale", "offset", "mean", "variance"


@pytest.mark.parametrize("version", ["", "V2", "V3"])
@pytest.mark.parametrize("training", [False, True])
def test_fused(version, training):
    op = getattr(raw, f"FusedBatchNorm{version}")
    run = lambda *xs: op(**dict(zip(NAMES, xs)), is_training=training, epsilon=0.01)
    assert_agrees(lambda *xs: run(*xs)[:3], *GIVEN)
    model = anyjax.from_tensorflow(lambda *xs: tuple(run(*xs)), *GIVEN)
    want = [x.numpy() for x in run(*GIVEN)]
    # Outside of training TensorFlow's kernel leaves both reserve spaces as the memory was.
    want[3:5] = (X.mean((0, 1, 2)), X.var((0, 1, 2))) if training else (MEAN, VARIANCE)
    assert_close(list(model(*GIVEN)), want, reduction=64)


def test_fused_moving_average():
    run = lambda *xs: raw.FusedBatchNormV3(
        **dict(zip(NAMES, xs)), is_training=True, exponential_avg_factor=0.3
    )[:3]
    assert_agrees(run, *GIVEN)


def test_fused_of_half_precision_and_of_little():
    how = {"is_training": True}
    run = lambda *xs: raw.FusedBatchNormV3(**dict(zip(NAMES, xs)), **how)[:3]
    run_wide = lambda x, *xs: [tf.cast(y, tf.float32) for y in run(tf.cast(x, tf.float16), *xs)]
    assert_agrees(run_wide, *GIVEN, grad=False, vmap=False)
    assert_agrees(run, X[:1, :1, :1], *GIVEN[1:], grad=False)
    assert_agrees(run, X[:0], *GIVEN[1:], grad=False, vmap=False)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("version", ["", "V2", "V3"])
def test_fused_grad(version, training):
    op = getattr(raw, f"FusedBatchNormGrad{version}")
    forward = raw.FusedBatchNorm(**dict(zip(NAMES, GIVEN)), is_training=training)
    saved = (forward.reserve_space_1, forward.reserve_space_2) if training else (MEAN, VARIANCE)
    rest = {"reserve_space_3": np.zeros(1, np.float32)} if version == "V3" else {}
    run = lambda g, x, scale: op(
        y_backprop=g, x=x, scale=scale, reserve_space_1=saved[0], reserve_space_2=saved[1],
        is_training=training, **rest,
    )[:3]  # fmt: skip
    model = anyjax.from_tensorflow(run, X[::-1], X, SCALE)
    want = [y.numpy() for y in run(X[::-1], X, SCALE)]
    assert_close(list(model(X[::-1], X, SCALE)), want, reduction=64)


@pytest.mark.parametrize("training", [False, True])
def test_channels_first(training):
    """TensorFlow computes this on no CPU."""
    turned = np.transpose(X, [0, 3, 1, 2])
    models = []
    for layout, x in (("NHWC", X), ("NCHW", turned)):
        run = lambda *xs, layout=layout: raw.FusedBatchNormV3(
            **dict(zip(NAMES, xs)), is_training=training, data_format=layout
        )[:3]
        models.append((anyjax.from_tensorflow(run, x, *GIVEN[1:]), x))
    (last, x), (first, y) = models
    want, got = last(x, *GIVEN[1:]), first(y, *GIVEN[1:])
    assert_close([np.transpose(got[0], [0, 2, 3, 1]), *got[1:]], list(want), reduction=64)


def test_forward_and_second_derivatives():
    run = lambda *xs: raw.FusedBatchNormV3(**dict(zip(NAMES, xs)), is_training=True)[0]
    model = anyjax.from_tensorflow(run, *GIVEN)
    weights = random(*X.shape)

    def plain(x):
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return (((x - mean) * (variance + 1e-4) ** -0.5 * SCALE + OFFSET) ** 3 * weights).sum()

    ours = lambda x: (model.apply(model.params, x, *GIVEN[1:]) ** 3 * weights).sum()
    for derived in (
        lambda f: jax.grad(f),
        lambda f: lambda x: jax.jvp(f, (x,), (weights,))[1],
        lambda f: jax.grad(lambda x: (jax.grad(f)(x) * weights).sum()),
        lambda f: lambda x: jax.jvp(jax.grad(f), (x,), (weights,))[1],
    ):
        assert_close(derived(ours)(X), derived(plain)(X), reduction=1000)


@pytest.mark.parametrize("radius, bias, alpha, beta", [(5, 1, 1, 0.5), (1, 2, 0.3, 0.75)])
def test_local_response(radius, bias, alpha, beta):
    x = random(2, 3, 2, 7)
    how = {"depth_radius": radius, "bias": bias, "alpha": alpha, "beta": beta}
    assert_agrees(lambda x: tf.nn.local_response_normalization(x, **how), x)
    y = tf.nn.local_response_normalization(x, **how).numpy()
    run = lambda g, x: raw.LRNGrad(input_grads=g, input_image=x, output_image=y, **how)
    assert_agrees(run, x[::-1], x, grad=False, vmap=False)


def test_l2_loss():
    assert_agrees(tf.nn.l2_loss, X)
    assert_agrees(tf.nn.l2_loss, X[:0])
