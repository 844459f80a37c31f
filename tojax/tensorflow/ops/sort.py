"""Order: the largest elements, where they are, and what has a rank."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core.schema import Static, lowers


@lowers("TopKV2")
def top_k_v2(input, k: Static, sorted, index_type):
    values, places = lax.top_k(input, int(k))
    return values, places.astype(index_type)


@lowers("TopK")
def top_k(input, k, sorted):
    return lax.top_k(input, k)


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


def _search(side: str):
    def lowering(sorted_inputs, values, out_type):
        """Row by row."""
        find = lambda row, wanted: jnp.searchsorted(row, wanted, side)
        return jax.vmap(find)(sorted_inputs, values).astype(out_type)

    return lowering


lowers("LowerBound")(_search("left"))
lowers("UpperBound")(_search("right"))


@lowers("Bucketize")
def bucketize(input, boundaries):
    """Integers are compared as floats."""
    ends = np.array(boundaries, np.float32)
    return jnp.searchsorted(ends, input.astype(ends.dtype), "right").astype("int32")
