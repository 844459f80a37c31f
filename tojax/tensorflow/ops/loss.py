"""Cross entropy, whose gradient TensorFlow computes with its value."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tojax.tensorflow.core.schema import lowers


@jax.custom_jvp
def cross_entropy(logits, labels):
    """(loss, its gradient for the logits); the gradient takes labels to sum to 1."""
    loss = -jnp.sum(labels * jax.nn.log_softmax(logits), -1)
    return loss, jax.nn.softmax(logits) - labels


@cross_entropy.defjvp
def _cross_entropy_jvp(primals, tangents):
    """The gradient of the second output for the labels is left out, as it is in TensorFlow."""
    logits, d_logits = primals[0], tangents[0]
    loss, slope = cross_entropy(*primals)
    d_loss = jnp.sum(slope * d_logits - jax.nn.log_softmax(logits) * tangents[1], -1)
    return (loss, slope), (d_loss, jax.jvp(jax.nn.softmax, (logits,), (d_logits,))[1])


@jax.custom_jvp
def cross_entropy_of_classes(logits, labels):
    """A label that is no class makes its row NaN, as on GPUs; on CPUs it is an error."""
    chosen = labels[..., None] == np.arange(logits.shape[-1])
    loss = -jnp.sum(jnp.where(chosen, jax.nn.log_softmax(logits), 0), -1)
    slope = jax.nn.softmax(logits) - chosen
    known = (labels >= 0) & (labels < logits.shape[-1])
    nan = np.array(np.nan, logits.dtype)
    return jnp.where(known, loss, nan), jnp.where(known[..., None], slope, nan)


@cross_entropy_of_classes.defjvp
def _cross_entropy_of_classes_jvp(primals, tangents):
    logits, d_logits = primals[0], tangents[0]
    loss, slope = cross_entropy_of_classes(*primals)
    d_slope = jax.jvp(jax.nn.softmax, (logits,), (d_logits,))[1]
    return (loss, slope), (jnp.sum(slope * d_logits, -1), d_slope)


@lowers("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy(features, labels):
    return cross_entropy(*jnp.broadcast_arrays(features, labels))


@lowers("SparseSoftmaxCrossEntropyWithLogits")
def sparse_softmax_cross_entropy(features, labels):
    return cross_entropy_of_classes(features, labels)
