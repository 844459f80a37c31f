"""Counts of n-grams of integers."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np

from anyjax.errors import Unsupported
from anyjax.onnx.core.schema import lowers


@lowers("TfIdfVectorizer")
def tf_idf(
    X, max_gram_length, max_skip_count, min_gram_length, mode, ngram_counts, ngram_indexes,
    pool_int64s, pool_strings, weights,
):  # fmt: skip
    if pool_strings is not None:
        raise Unsupported(
            "TfIdfVectorizer of strings",
            why="JAX has arrays of numbers only",
            do="number the words before, or leave out what it computes: outputs=[...]",
        )
    counts = _counts(
        jnp.atleast_2d(X), (min_gram_length, max_gram_length), max_skip_count, ngram_counts,
        ngram_indexes, pool_int64s,
    )  # fmt: skip
    scale = jnp.ones(counts.shape[1]) if weights is None else jnp.asarray(weights, jnp.float32)
    if mode != "TF":  # weights are in the order of the pool
        scale = jnp.ones(counts.shape[1]).at[np.array(ngram_indexes)].set(scale)
        counts = (jnp.minimum(counts, 1) if mode == "IDF" else counts) * scale
    return counts if X.ndim > 1 else counts[0]


def _counts(rows, lengths, max_skip_count, ngram_counts, ngram_indexes, pool_int64s):
    """Counts the n-grams of these lengths, at their places in the result."""
    counts = jnp.zeros((len(rows), max(ngram_indexes) + 1), jnp.float32)
    starts, first = [*ngram_counts, len(pool_int64s)], 0
    for n, (low, high) in enumerate(itertools.pairwise(starts), 1):
        pool = np.reshape(pool_int64s[low:high], (-1, n))
        places = np.array(ngram_indexes[first : first + len(pool)], int)
        first += len(pool)
        if len(pool) and lengths[0] <= n <= lengths[1]:
            counts = counts.at[:, places].add(_matches(rows, pool, max_skip_count))
    return counts


def _matches(rows, pool, skips):
    """Counts each n-gram of the pool in each row, with up to so many elements between its own."""
    n = pool.shape[1]
    total = jnp.zeros((len(rows), len(pool)), jnp.float32)
    for step in range(1, 2 + (skips if n > 1 else 0)):
        width = rows.shape[1] - step * (n - 1)
        if width > 0:
            windows = jnp.stack([rows[:, i * step : i * step + width] for i in range(n)], -1)
            equal = (windows[:, :, None] == jnp.asarray(pool)).all(-1)
            total += equal.sum(1, dtype=jnp.float32)
    return total
