"""Sequences, which are lists, and optional values, which may be None."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.errors import WrongArguments
from anyjax.onnx.core.schema import Known, Static, lowers
from anyjax.stablehlo.core.static_values import as_jax, sizes


@lowers("SequenceEmpty")
def sequence_empty(dtype):
    return []


@lowers("SequenceConstruct")
def sequence_construct(inputs: Known):
    return list(inputs)


@lowers("SequenceAt")
def sequence_at(input_sequence: Known, position: Static):
    try:
        return input_sequence[position.item()]
    except IndexError:
        raise WrongArguments(
            f"SequenceAt({position.item()})",
            why=f"the sequence has {len(input_sequence)} elements",
            do="give another position, or a longer sequence",
        ) from None


@lowers("SequenceInsert")
def sequence_insert(input_sequence: Known, tensor: Known, position: Static):
    place = len(input_sequence) if position is None else position.item()
    place = place + len(input_sequence) if place < 0 else place
    return [*input_sequence[:place], tensor, *input_sequence[place:]]


@lowers("SequenceErase")
def sequence_erase(input_sequence: Known, position: Static):
    place = (-1 if position is None else position.item()) % len(input_sequence)
    return [*input_sequence[:place], *input_sequence[place + 1 :]]


@lowers("SequenceLength")
def sequence_length(input_sequence: Known):
    return np.asarray(len(input_sequence), np.int64)


@lowers("ConcatFromSequence")
def concat_from_sequence(input_sequence, axis, new_axis):
    if new_axis:
        return jnp.stack(input_sequence, axis)
    return lax.concatenate(input_sequence, axis % input_sequence[0].ndim)


@lowers("SplitToSequence")
def split_to_sequence(input, split: Static, axis, keepdims):
    """One number is the size of every piece but the last, which may be smaller."""
    total = input.shape[axis]
    step = 1 if split is None else split.item() if not split.ndim else None
    if step is not None:
        pieces = [min(step, total - i) for i in range(0, total, step)]
    else:
        pieces = [*sizes(split)]
    arrays = lax.split(input, pieces, axis % input.ndim)
    drop = split is None and not keepdims
    return [jnp.squeeze(x, axis) if drop else x for x in arrays]


@lowers("Optional")
def optional(input: Known, type):
    return input


@lowers("OptionalGetElement")
def optional_get_element(input: Known):
    if input is None:
        raise WrongArguments(
            "OptionalGetElement of nothing",
            why="the optional value is empty",
            do="give the argument that it comes from",
        )
    return input if isinstance(input, list) else as_jax(input)


@lowers("OptionalHasElement")
def optional_has_element(input: Known):
    return np.asarray(input is not None)
