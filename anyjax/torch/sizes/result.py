"""Results of a program of which some elements count."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch

from anyjax.calls.counted_array import CountedArray
from anyjax.torch.core import current_trace, sizes
from anyjax.torch.core.lifting import array_of, inner
from anyjax.torch.core.tensor import CountedTensor
from anyjax.torch.data_dependent.split_by_values import Sizes
from anyjax.torch.sizes.counted import Counted, extent
from anyjax.torch.sizes.counted import Sizes as Numbers


def known(leaf: object) -> Any:
    """Returns an output leaf: the array of a tensor, the number of a size, else what it is."""
    if isinstance(leaf, Sizes):
        leaf.refuse("a result")
    if isinstance(leaf, (torch.SymInt, torch.SymFloat)):
        return sizes.to_jax(leaf, as_number=True)
    return array(leaf) if isinstance(leaf, torch.Tensor) else leaf


def array(leaf: torch.Tensor) -> jax.Array | CountedArray:
    """Returns a tensor as an array; one of which some elements count with their number, those
    first.
    """
    run, tensor = current_trace.trace(), inner(leaf)
    if not isinstance(tensor, CountedTensor):
        return array_of(leaf)
    lengths, x = Numbers(run.lengths), Counted(tensor.rows, tensor.dims)
    for axis in x.symbolic:
        x = run.below(lengths.flatten, (x, axis), {}) if len(x.dims[axis]) > 1 else x
    rows = run.below(lengths.fill, (x,), {})
    if not x.symbolic:
        return array_of(x.tensor)
    counts = [run.lengths.value(extent(x.dims[axis])) for axis in x.symbolic]
    return CountedArray(array_of(rows), counts[0] if len(counts) == 1 else jnp.stack(counts))
