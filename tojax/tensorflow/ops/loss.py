"""Cross entropy, whose gradient TensorFlow computes with its value."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.errors import Unsupported
from tojax.stablehlo.core.static_values import is_known
from tojax.tensorflow.core.schema import Known, lowers


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


# Connectionist temporal classification: the loss of all ways to say a text in some time.


NEVER = np.float32(-1e30)  # the logarithm of a probability of 0, without its infinities


def dense(indices, values, count, longest):
    """(labels [texts, longest], how long each text is) from a sparse matrix of labels."""
    if is_known(indices):
        longest = int(indices[:, 1].max(initial=-1)) + 1
    at = jnp.asarray(indices).astype(np.int32)
    labels = jnp.zeros((count, longest), np.int32).at[at[:, 0], at[:, 1]].set(values, mode="drop")
    return labels, jnp.zeros(count, np.int32).at[at[:, 0]].add(1)


def losses(inputs, labels, lengths, times, blank):
    """-log of the probability, over all ways; a way passes the labels with blanks between."""
    steps = jax.nn.log_softmax(inputs.astype(np.float32))
    between = jnp.full_like(labels, blank)
    states = jnp.stack([between, labels], -1).reshape(len(labels), -1)
    states = jnp.pad(states, [(0, 0), (0, 1)], constant_values=blank)
    earlier = jnp.pad(states, [(0, 0), (2, 0)], constant_values=blank)[:, :-2]
    skips = (states != blank) & (states != earlier)

    def step(ways, given):
        time, now = given
        back = lambda n: jnp.pad(ways, [(0, 0), (n, 0)], constant_values=NEVER)[:, :-n]
        came = jnp.logaddexp(ways, back(1))
        came = jnp.where(skips, jnp.logaddexp(came, back(2)), came)
        new = came + jnp.take_along_axis(now, states, 1)
        return jnp.where((time < times)[:, None], new, ways), None

    first = jnp.where(np.arange(states.shape[1]) == 0, np.float32(0), NEVER)
    # before the first step all ways stand in front of the first state
    start = jnp.broadcast_to(first, states.shape)
    ways, _ = lax.scan(step, start, (np.arange(len(steps)), steps))
    end = lambda at: jnp.take_along_axis(ways, jnp.clip(at, 0)[:, None], 1, mode="clip")[:, 0]
    last = jnp.where(lengths > 0, end(2 * lengths - 1), NEVER)
    return -jnp.logaddexp(end(2 * lengths), last)


def ctc(inputs, indices, values, times, blank, collapse, merge, ignore):
    """(losses, their gradient); that of a text that is too long is infinite, or left out."""
    if collapse or not merge:
        raise Unsupported(
            "CTC with preprocess_collapse_repeated, or without ctc_merge_repeated",
            why="its ways differ from those of the usual loss",
            do="collapse repeated labels before the loss",
        )
    labels, lengths = dense(indices, values, inputs.shape[1], min(len(values), len(inputs)))
    beyond = -NEVER / 2

    def loss(inputs):
        found = losses(inputs, labels, lengths, times, blank)
        found = jnp.where((found > beyond) | (lengths > times), np.inf, found)
        found = jnp.where(lengths > times, 0, found) if ignore else found
        return found.astype(inputs.dtype)

    slope = jax.grad(lambda x: loss(x).sum())(lax.stop_gradient(inputs))
    return loss(inputs), slope


@lowers("CTCLoss")
def ctc_loss(
    inputs, labels_indices: Known, labels_values, sequence_length, preprocess_collapse_repeated,
    ctc_merge_repeated, ignore_longer_outputs_than_inputs,
):  # fmt: skip
    """The last class is the blank."""
    how = preprocess_collapse_repeated, ctc_merge_repeated, ignore_longer_outputs_than_inputs
    blank = inputs.shape[2] - 1
    return ctc(inputs, labels_indices, labels_values, sequence_length, blank, *how)


@lowers("CTCLossV2")
def ctc_loss_v2(
    inputs, labels_indices: Known, labels_values, sequence_length, preprocess_collapse_repeated,
    ctc_merge_repeated, ignore_longer_outputs_than_inputs,
):  # fmt: skip
    """The first class is the blank."""
    how = preprocess_collapse_repeated, ctc_merge_repeated, ignore_longer_outputs_than_inputs
    return ctc(inputs, labels_indices, labels_values, sequence_length, 0, *how)
