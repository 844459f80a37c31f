"""Cross entropy, whose gradient TensorFlow computes with its value."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core.schema import lowers


@jax.custom_jvp
def cross_entropy(logits, labels):
    """(loss, its gradient for the logits); labels are taken to sum to 1 in the gradient."""
    found = jax.nn.log_softmax(logits)
    loss = -jnp.sum(labels * found, -1)
    return loss, jnp.exp(found) - labels


@cross_entropy.defjvp
def _cross_entropy_jvp(primals, tangents):
    """The gradient of the second output for the labels is left out, as it is in TensorFlow."""
    (logits, labels), (d_logits, d_labels) = primals, tangents
    loss, slope = cross_entropy(logits, labels)
    found = jax.nn.log_softmax(logits)
    d_loss = jnp.sum(slope * d_logits, -1) - jnp.sum(found * d_labels, -1)
    return (loss, slope), (d_loss, jax.jvp(jax.nn.softmax, (logits,), (d_logits,))[1])


@lowers("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy(features, labels):
    return cross_entropy(*jnp.broadcast_arrays(features, labels))


@lowers("SparseSoftmaxCrossEntropyWithLogits")
def sparse_softmax_cross_entropy(features, labels):
    """A label that is no class makes its row NaN, as on GPUs; on CPUs it is an error."""
    classes = features.shape[-1]
    known = (labels >= 0) & (labels < classes)
    one_hot = jax.nn.one_hot(labels, classes, dtype=features.dtype)
    one_hot = jnp.where(known[:, None], one_hot, np.array(np.nan, features.dtype))
    return cross_entropy(features, lax.stop_gradient(one_hot))
