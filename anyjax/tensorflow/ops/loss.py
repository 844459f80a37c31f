"""Losses: cross entropy and CTC, whose gradients TensorFlow computes with the value; L2."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.errors import Unsupported
from anyjax.stablehlo.core.static_values import is_known
from anyjax.tensorflow.core.schema import Known, lowers, table

table.update({"L2Loss": lambda t: jnp.sum(lax.square(t)) / 2})


# Cross entropy.


@jax.custom_jvp
def cross_entropy(logits, labels):
    """Returns the loss and its gradient for the logits, which takes labels to sum to 1."""
    loss = -jnp.sum(labels * jax.nn.log_softmax(logits), -1)
    return loss, jax.nn.softmax(logits) - labels


@cross_entropy.defjvp
def _cross_entropy_jvp(primals, tangents):
    """Leaves out the gradient of the second output for the labels, as TensorFlow does."""
    logits, d_logits = primals[0], tangents[0]
    loss, slope = cross_entropy(*primals)
    d_loss = jnp.sum(slope * d_logits - jax.nn.log_softmax(logits) * tangents[1], -1)
    return (loss, slope), (d_loss, jax.jvp(jax.nn.softmax, (logits,), (d_logits,))[1])


@jax.custom_jvp
def cross_entropy_of_classes(logits, labels):
    """Makes a row NaN if its label is no class, as on GPUs; on CPUs it is an error."""
    chosen = labels[..., None] == np.arange(logits.shape[-1])
    loss = -jnp.sum(jnp.where(chosen, jax.nn.log_softmax(logits), 0), -1)
    slope = jax.nn.softmax(logits) - chosen
    valid = (labels >= 0) & (labels < logits.shape[-1])
    nan = np.array(np.nan, logits.dtype)
    return jnp.where(valid, loss, nan), jnp.where(valid[..., None], slope, nan)


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


# Connectionist temporal classification: the loss over all alignments of a text with the steps.


NEVER = np.float32(-1e30)  # the logarithm of a probability of 0, without its infinities


def dense_labels(indices, values, count, longest):
    """Returns labels [texts, longest] and the length of each text, from a sparse matrix."""
    if is_known(indices):
        longest = int(indices[:, 1].max(initial=-1)) + 1
    at = jnp.asarray(indices).astype(np.int32)
    labels = jnp.zeros((count, longest), np.int32).at[at[:, 0], at[:, 1]].set(values, mode="drop")
    return labels, jnp.zeros(count, np.int32).at[at[:, 0]].add(1)


def ctc_losses(inputs, labels, lengths, times, blank):
    """Returns -log of the probability of each text: the sum over all alignments, which pass the
    labels in order with optional blanks between them.
    """
    steps = jax.nn.log_softmax(inputs.astype(np.float32))
    between = jnp.full_like(labels, blank)
    states = jnp.stack([between, labels], -1).reshape(len(labels), -1)
    states = jnp.pad(states, [(0, 0), (0, 1)], constant_values=blank)
    earlier = jnp.pad(states, [(0, 0), (2, 0)], constant_values=blank)[:, :-2]
    skips = (states != blank) & (states != earlier)

    def step(alpha, time_and_log_probs):
        time, log_probs = time_and_log_probs
        shifted = lambda n: jnp.pad(alpha, [(0, 0), (n, 0)], constant_values=NEVER)[:, :-n]
        arriving = jnp.logaddexp(alpha, shifted(1))
        arriving = jnp.where(skips, jnp.logaddexp(arriving, shifted(2)), arriving)
        new = arriving + jnp.take_along_axis(log_probs, states, 1)
        return jnp.where((time < times)[:, None], new, alpha), None

    first = jnp.where(np.arange(states.shape[1]) == 0, np.float32(0), NEVER)
    # before the first step all alignments stand in front of the first state
    start = jnp.broadcast_to(first, states.shape)
    alpha, _ = lax.scan(step, start, (np.arange(len(steps)), steps))
    end = lambda at: jnp.take_along_axis(alpha, jnp.clip(at, 0)[:, None], 1, mode="clip")[:, 0]
    last = jnp.where(lengths > 0, end(2 * lengths - 1), NEVER)
    return -jnp.logaddexp(end(2 * lengths), last)


def ctc(inputs, indices, values, times, collapse, merge, ignore, blank):
    """Returns losses and their gradient; the loss of a text that is too long is infinite or 0."""
    if collapse or not merge:
        raise Unsupported(
            "CTC with preprocess_collapse_repeated, or without ctc_merge_repeated",
            why="its ways differ from those of the usual loss",
            do="collapse repeated labels before the loss",
        )
    labels, lengths = dense_labels(indices, values, inputs.shape[1], min(len(values), len(inputs)))
    beyond = -NEVER / 2

    def loss(inputs):
        value = ctc_losses(inputs, labels, lengths, times, blank)
        value = jnp.where((value > beyond) | (lengths > times), np.inf, value)
        value = jnp.where(lengths > times, 0, value) if ignore else value
        return value.astype(inputs.dtype)

    slope = jax.grad(lambda x: loss(x).sum())(lax.stop_gradient(inputs))
    return loss(inputs), slope


@lowers("CTCLoss")
def ctc_loss(inputs, labels_indices: Known, labels_values, sequence_length, /, *how):
    """The last class is the blank."""
    blank = inputs.shape[2] - 1
    return ctc(inputs, labels_indices, labels_values, sequence_length, *how, blank)


@lowers("CTCLossV2")
def ctc_loss_v2(inputs, labels_indices: Known, labels_values, sequence_length, /, *how):
    """The first class is the blank."""
    return ctc(inputs, labels_indices, labels_values, sequence_length, *how, 0)
