"""Whether a TensorFlow function and its conversion agree: values, gradients and vmap."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

import anyjax
from anyjax import dtypes
from tests.tolerance import assert_close


def assert_agrees(
    function, *args, grad: bool = True, vmap: bool = True, depth: int = 64, **options
) -> Any:
    """Compares ``function`` with its conversion on numpy arrays, and returns the Model.

    Values are compared under ``jit`` and, without ``grad`` and ``vmap``, outside of it, too, where
    shapes may depend on values. ``grad``: gradients of all floating-point arguments, for the
    same random cotangents. ``vmap``: over a new leading axis of every argument, against one call
    for each. ``depth`` counts the terms of the longest sum, for the tolerance.
    """
    args = tuple(np.asarray(x) for x in args)
    model = anyjax.from_tensorflow(function, *args, **options)
    theirs = tf.function(function)
    want = _leaves(theirs(*map(tf.constant, args)))
    _assert_close(jax.tree.leaves(model(*args)), want, depth, "value")
    if not grad and not vmap:
        eager = model.apply(model.params, *args)
        _assert_close(jax.tree.leaves(eager), want, depth, "value outside jit")
    if grad and any(map(is_float, args)) and any(map(is_float, want)):
        _assert_same_gradients(theirs, model, args, want, depth)
    if vmap:
        _assert_same_under_vmap(model, args, depth)
    return model


def is_float(x) -> bool:
    """Returns whether an array can carry a gradient; bfloat16 can."""
    return dtypes.is_float(x.dtype)


def _assert_same_gradients(function, model, args, want, depth) -> None:
    rng = np.random.default_rng(0)
    floats = [i for i, x in enumerate(args) if is_float(x)]
    weights = [rng.standard_normal(x.shape).astype(x.dtype) for x in want]
    smooth = [i for i, x in enumerate(want) if is_float(x)]
    inputs = [tf.constant(x) for x in args]
    with tf.GradientTape() as tape:
        tape.watch([inputs[i] for i in floats])
        out = tf.nest.flatten(function(*inputs), expand_composites=True)
        total = sum(tf.reduce_sum(tf.math.real(out[i] * weights[i])) for i in smooth)
    theirs = tape.gradient(total, [inputs[i] for i in floats])

    def loss(changed):
        values = list(args)
        for i, x in zip(floats, changed):
            values[i] = x
        out = jax.tree.leaves(model.apply(model.params, *values))
        return sum(jnp.sum(jnp.real(out[i] * weights[i])) for i in smooth)

    ours = jax.jit(jax.grad(loss))([jnp.asarray(args[i]) for i in floats])
    for i, grad, want_grad in zip(floats, ours, theirs):
        grad = np.conj(grad) if grad.dtype.kind == "c" else grad  # JAX's convention
        want_grad = (
            np.zeros_like(args[i]) if want_grad is None else tf.convert_to_tensor(want_grad).numpy()
        )
        _assert_close([grad], [want_grad], depth, f"gradient of argument {i}")


def _assert_same_under_vmap(model, args, depth) -> None:
    """Compares under vmap on three copies: floats are scaled a little, others stay."""
    factor = lambda x, k: np.asarray(1 + k / 8 if is_float(x) else 1, x.dtype)
    scaled = [np.stack([x * factor(x, k) for k in range(3)]) for x in args]
    call = lambda *xs: jax.tree.leaves(model.apply(model.params, *xs))
    got = jax.jit(jax.vmap(call))(*scaled)
    each = [jax.tree.leaves(model(*(x[k] for x in scaled))) for k in range(3)]
    _assert_close(got, [np.stack(x) for x in zip(*each)], depth, "vmap")


def _leaves(out) -> list[np.ndarray]:
    return [x.numpy() for x in tf.nest.flatten(out, expand_composites=True)]


def _assert_close(got, want, depth, what) -> None:
    """Compares shapes, dtypes (as narrow as JAX's) and values."""
    for x, y in zip(got, want):
        assert x.dtype == jax.dtypes.canonicalize_dtype(y.dtype), (what, x.dtype)
    try:
        assert_close([*got], [*want], reduction=depth)
    except AssertionError as error:
        error.add_note(what)
        raise
