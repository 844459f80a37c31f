"""transformers' processors that look at the scores alone, as functions of their numbers.

Numbers (a temperature, top_p, top_k) are arguments, so that new ones need no new program. They are
rounded on the host, as transformers does: ``1 - top_p`` is computed in 64 bits. The ``keep``
likeliest tokens always stay; beam search needs two.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.tree_util import Partial
from transformers.generation import logits_process

from anyjax.trees import Static


def kth_largest(scores, k):
    """Returns the k-th largest of each row, float32 ``[batch, 1]``; NaN counts as the largest.

    ``k`` may be traced. The result's bits are found from the highest to the lowest, each by
    counting: 32 passes, which on a CPU take a twelfth of the time of ``lax.top_k``, which sorts.
    """
    if isinstance(k, int) and k == 1:
        return scores.max(-1, keepdims=True)
    top, k = np.uint32(1 << 31), jnp.minimum(k, scores.shape[-1])
    bits = lax.bitcast_convert_type(jnp.where(scores != scores, jnp.nan, scores), jnp.uint32)
    order = jnp.where(bits & top, ~bits, bits | top)  # ascends with the floats

    def next_bit(i, bits_so_far):
        candidate = bits_so_far | lax.shift_right_logical(top, i.astype(jnp.uint32))
        enough = (order >= candidate).sum(-1, keepdims=True) >= k
        return jnp.where(enough, candidate, bits_so_far)

    largest = lax.fori_loop(0, 32, next_bit, jnp.zeros((*scores.shape[:-1], 1), jnp.uint32))
    bits = jnp.where(largest & top, largest ^ top, ~largest)
    return lax.bitcast_convert_type(bits, scores.dtype)


class Ascending:
    """The rows of ``values`` in ascending order; equal values keep their order."""

    def __init__(self, values):
        self.values = values
        self.place = lax.broadcasted_iota(jnp.int32, values.shape, values.ndim - 1)
        self.sorted, self.order = lax.sort((values, self.place), num_keys=1)

    def at_rank(self, rank):
        """Returns the values of these ranks ``[batch, 1]``."""
        return jnp.take_along_axis(self.sorted, rank, -1)

    def below_rank(self, rank):
        """Returns a mask of the values below these ranks ``[batch, 1]``, without a scatter."""
        last = self.sorted.shape[-1] - 1
        value, place = (jnp.take_along_axis(x, rank, -1) for x in (self.sorted, self.order))
        first = (self.values < value) | ((self.values == value) & (self.place < place))
        return jnp.where(rank > last, True, first)


def temperature(value, ids, at, scores):
    """Divides all scores by ``value``."""
    return scores / value


def top_k(k, filler, ids, at, scores):
    """Removes scores below the ``k``-th largest."""
    return jnp.where(scores < kth_largest(scores, k), filler, scores)


def top_p(rest, keep, filler, ids, at, scores):
    """Removes the least likely tokens, whose probabilities add up to ``rest`` at most."""
    ascending = Ascending(scores)
    total = jnp.cumsum(jax.nn.softmax(ascending.sorted, -1), -1)
    count = (total <= rest).sum(-1, keepdims=True)
    count = jnp.minimum(count, scores.shape[-1] - keep.value)
    return jnp.where(ascending.below_rank(count), filler, scores)


def top_h(share, most, filler, ids, at, scores):
    """Keeps the likeliest of ``most`` tokens up to a ``share`` of their entropy."""
    top, order = lax.top_k(scores, min(most.value, scores.shape[-1]))
    logs = jax.nn.log_softmax(top, -1)
    chances = jax.nn.softmax(logs, -1)
    limit = _entropy(logs, chances) * share
    total = jnp.cumsum(-chances * jnp.log(chances), -1)
    last = jnp.maximum((total <= limit).sum(-1, keepdims=True) - 1, 0)
    return jnp.where(_down_to(last, top, order, scores), scores, filler)


def _down_to(rank, top, order, scores):
    """Returns a mask of the scores down to a rank ``[batch, 1]`` of ``top``; ties by position."""
    value, place = (jnp.take_along_axis(x, rank, -1) for x in (top, order))
    index = lax.broadcasted_iota(jnp.int32, scores.shape, scores.ndim - 1)
    return (scores > value) | ((scores == value) & (index <= place))


def _likeliest(scores, count: int):
    """Returns a mask of the largest ``count``; ties by position."""
    if count == 1:
        return scores == scores.max(-1, keepdims=True)  # never less than a share of itself
    top, order = lax.top_k(scores, min(count, scores.shape[-1]))
    return _down_to(jnp.full_like(order[:, :1], order.shape[-1] - 1), top, order, scores)


def min_p(share, keep, filler, ids, at, scores):
    """Removes tokens below a ``share`` of the largest probability."""
    chances = jax.nn.softmax(scores, -1)
    low = chances < share * chances.max(-1, keepdims=True)
    return jnp.where(low & ~_likeliest(chances, keep.value), filler, scores)


def typical(mass, keep, filler, ids, at, scores):
    """Keeps the tokens whose surprise is closest to the entropy, up to a probability ``mass``."""
    logs = jax.nn.log_softmax(scores, -1)
    ascending = Ascending(jnp.abs(-logs + jnp.nansum(logs * jnp.exp(logs), -1, keepdims=True)))
    sorted_ = jnp.take_along_axis(scores, ascending.order, -1)
    total = jnp.cumsum(jax.nn.softmax(sorted_, -1), -1)
    last = jnp.minimum((total < mass).sum(-1, keepdims=True), scores.shape[-1] - 1)
    far = ascending.values > ascending.at_rank(last)
    always_kept = ascending.below_rank(jnp.full_like(last, keep.value))
    return jnp.where(far & ~always_kept, filler, scores)


def epsilon(least, keep, filler, ids, at, scores):
    """Removes tokens below a probability."""
    low = jax.nn.softmax(scores, -1) < least
    return jnp.where(low & _not_among(scores, keep), filler, scores)


def eta(least, keep, filler, ids, at, scores):
    """Removes tokens below a probability that falls with the entropy."""
    logs = jax.nn.log_softmax(scores, -1)
    entropy = _entropy(logs, jax.nn.softmax(logs, -1))
    low = jax.nn.softmax(scores, -1) < jnp.minimum(least, jnp.sqrt(least) * jnp.exp(-entropy))
    return jnp.where(low & _not_among(scores, keep), filler, scores)


def _entropy(logs, chances):
    """Returns the entropy as torch's distributions do: impossible tokens add nothing."""
    return -(jnp.maximum(logs, jnp.finfo(logs.dtype).min) * chances).sum(-1, keepdims=True)


def _not_among(scores, keep):
    """Returns a mask of the scores below the ``keep`` largest."""
    return scores < kth_largest(scores, keep.value)


def _rule(function: Callable, number: Callable) -> Callable:
    """Returns the rule for a processor with one number, a filler and tokens to keep."""

    def form(processor: logits_process.LogitsProcessor, batch: int) -> Partial:
        keep = Static(processor.min_tokens_to_keep)
        return Partial(function, np.float32(number(processor)), keep, _filler(processor))

    return form


def _filler(processor: logits_process.LogitsProcessor) -> np.float32:
    return np.float32(processor.filter_value)


# (processor, rows) -> a pytree that is called with (ids, at, scores).
WARPERS: dict[type, Callable] = {
    logits_process.TemperatureLogitsWarper: lambda p, n: Partial(
        temperature, np.float32(p.temperature)
    ),
    logits_process.TopKLogitsWarper: lambda p, n: Partial(
        top_k, np.int32(min(p.top_k, np.iinfo(np.int32).max)), _filler(p)
    ),
    logits_process.TopHLogitsWarper: lambda p, n: Partial(
        top_h, np.float32(p.top_h), Static(p.top_n), _filler(p)
    ),
    logits_process.TopPLogitsWarper: _rule(top_p, lambda p: 1 - p.top_p),
    logits_process.MinPLogitsWarper: _rule(min_p, lambda p: p.min_p),
    logits_process.TypicalLogitsWarper: _rule(typical, lambda p: p.mass),
    logits_process.EpsilonLogitsWarper: _rule(epsilon, lambda p: p.epsilon),
    logits_process.EtaLogitsWarper: _rule(eta, lambda p: p.epsilon),
}
