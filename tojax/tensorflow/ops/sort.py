"""Order: the largest elements, where they are, and what has a rank."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.bisection import bisect
from tojax.tensorflow.core.schema import Static, lowers


def largest(x, k: int):
    """(values, places); of equals, which 0 and -0 are, the first ones."""
    key = lax.stop_gradient(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return lax.top_k(x, k)
    places = lax.top_k(jnp.where(key == 0, jnp.zeros_like(key), key), k)[1]
    return jnp.take_along_axis(x, places, -1, mode="promise_in_bounds"), places


@lowers("TopKV2")
def top_k_v2(input, k: Static, sorted, index_type):
    values, places = largest(input, int(k))
    return values, places.astype(index_type)


@lowers("TopK")
def top_k(input, k, sorted):
    return largest(input, k)


@lowers("ApproxTopK")
def approx_top_k(
    input, k, reduction_dimension, recall_target, is_max_k, reduction_input_size_override,
    aggregate_to_topk,
):  # fmt: skip
    function = lax.approx_max_k if is_max_k else lax.approx_min_k
    return function(
        input, k, reduction_dimension, recall_target, reduction_input_size_override,
        aggregate_to_topk,
    )  # fmt: skip


def _arg(function, worst: float):
    def lowering(input, axis: Static, output_type, /):
        """The first of equals; NaN counts as the worst."""
        if jnp.issubdtype(input.dtype, jnp.floating):
            input = jnp.where(jnp.isnan(input), input.dtype.type(worst), input)
        return function(input, axis.item() % input.ndim, output_type)

    return lowering


for name, function, worst in (("ArgMax", lax.argmax, -np.inf), ("ArgMin", lax.argmin, np.inf)):
    lowers(name)(_arg(function, worst))


@lowers("NthElement")
def nth_element(input, n, reverse):
    """All that are equal to the element share its gradient."""
    place = input.shape[-1] - 1 - n if reverse else n

    @jax.custom_jvp
    def nth(x):
        return lax.dynamic_index_in_dim(lax.sort(x), place, -1, keepdims=False)

    @nth.defjvp
    def jvp(primals, tangents):
        (x,), (dx,) = primals, tangents
        out = nth(x)
        hit = (x == out[..., None]).astype(x.dtype)
        return out, jnp.sum(dx * hit, -1) / jnp.sum(hit, -1)

    return nth(input)


def _search(before):
    def lowering(sorted_inputs, values, out_type):
        """Row by row."""
        return bisect(*map(lax.stop_gradient, (sorted_inputs, values)), before).astype(out_type)

    return lowering


lowers("LowerBound")(_search(lambda x, v: x < v))
lowers("UpperBound")(_search(lambda x, v: ~(v < x)))


@lowers("InTopK")
def in_top_k(predictions, targets, k):
    """No where a prediction of the row is not finite, or the target is none of its classes."""
    count = predictions.shape[-1]
    safe = jnp.clip(targets, 0, count - 1)[:, None]
    mine = jnp.take_along_axis(predictions, safe, -1, mode="promise_in_bounds")
    sure = jnp.all(jnp.isfinite(predictions), -1) & (targets >= 0) & (targets < count)
    return sure & (jnp.sum(predictions > mine, -1, dtype="int32") < k)


@lowers("InTopKV2")
def in_top_k_v2(predictions, targets, k):
    return in_top_k(predictions, targets, k)
