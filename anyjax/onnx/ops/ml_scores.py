"""Scores of classifiers and regressors of ``ai.onnx.ml``, transformed as onnxruntime does it."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from anyjax.errors import Unsupported
from anyjax.stablehlo.core.static_values import as_jax


def floats(x):
    """Returns numbers as floats; the operators compute integers in float32."""
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(np.float32)


def rows_of(x):
    """Returns float32 rows of features; a vector is one row."""
    x = x.astype(np.float32)
    return x[None] if x.ndim == 1 else x


def no_strings(values, operator):
    """Raises Unsupported if an attribute of strings has values."""
    if values:
        raise Unsupported(
            f"{operator} of strings, such as {values[0]!r}",
            why="JAX has arrays of numbers only",
            do="encode the strings as numbers before the model, and leave this operator out of it",
        )


def labels(index, integers, strings):
    """Returns the output for the labels of classes: it is computed where the graph uses it."""

    def output():
        if strings:
            raise Unsupported(
                f"labels that are strings, such as {strings[0]!r}",
                why="JAX has arrays of numbers only",
                do='take the scores alone, anyjax.from_onnx(file, outputs=["probabilities"]), and '
                "index the labels by the scores' argmax outside of the model",
            )
        return jnp.asarray(as_jax(np.asarray(integers, np.int64)))[index.astype(np.int32)]

    return output


@jax.custom_jvp
def probit(p):
    """Returns the normal distribution's quantiles, as the closed form that onnxruntime has."""
    x = 2 * p - 1
    log = jnp.log((1 - x) * (1 + x))
    v = 2 / (math.pi * 0.147) + log / 2
    return jnp.sign(x) * jnp.sqrt(2 * (jnp.sqrt(v * v - log / 0.147) - v))


probit.defjvps(lambda t, z, p: t * math.sqrt(2 * math.pi) * jnp.exp(z * z / 2))


def softmax_zero(scores):
    """Returns a softmax in which scores that are zero stay zero."""
    top = scores.max(-1, keepdims=True)
    zero = jnp.abs(scores) <= 1e-7
    exponentials = jnp.exp(scores - top)
    total = jnp.where(zero, 0, exponentials).sum(-1, keepdims=True)
    return jnp.where(zero, scores * jnp.exp(-top), exponentials) / total


TRANSFORMS = {
    "NONE": lambda scores: scores,
    "LOGISTIC": jax.nn.sigmoid,
    "SOFTMAX": jax.nn.softmax,
    "SOFTMAX_ZERO": softmax_zero,
    "PROBIT": probit,
}


def transformed(scores, post_transform):
    """Returns scores of shape ``[rows, targets]``; of one target only PROBIT is a transform."""
    if scores.shape[-1] == 1 and post_transform != "PROBIT":
        return scores
    return TRANSFORMS[post_transform](scores)


def both_classes(score, post_transform, complement):
    """Returns the scores of two classes from that of the second, of shape ``[rows]``: beside it
    stands its ``complement`` to 1, or its negative. LOGISTIC is the one other transform.

    Raises:
      Unsupported: onnxruntime leaves the scores of a class undefined.
    """
    if post_transform == "PROBIT":
        raise Unsupported(
            "PROBIT of two classes with a single score",
            why="onnxruntime computes the first column and leaves the second one undefined",
            do="write the model with a score for each class",
        )
    if post_transform == "LOGISTIC":
        return jax.nn.sigmoid(jnp.stack([-score, score], -1))
    return jnp.stack([1 - score if complement else -score, score], -1)
