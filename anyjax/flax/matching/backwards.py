"""Fills turned around: torch arrays written from the variables that they would fill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from anyjax.errors import WrongWeights
from anyjax.flax.matching.layer import Choice, Fill, Flax, Tensor
from anyjax.flax.matching.recurrent import GATES
from anyjax.flax.matching.stored import Stored

Arrays = dict[str, np.ndarray]  # by torch name


def stored_arrays(arrays: Arrays, module: Any) -> Stored:
    """Returns named arrays that are looked up whenever they are read."""

    def tensor(name: str) -> Tensor:
        return Tensor(name, (name,), arrays[name].shape, lambda: arrays[name])

    return Stored({name: tensor(name) for name in arrays}, module)


def write_back(
    decided: Mapping[Flax, tuple[Choice, str]], arrays: Arrays, tied: Mapping[str, str]
) -> None:
    """Writes the variables' values into the torch arrays that would fill them.

    A layout is any reordering of numbers: applied to the numbers' positions, it tells where each
    of a variable's numbers comes from.

    Args:
      decided: the choices of all layers.
      arrays: the memory that is written to; read by the tensors of the choices.
      tied: for each name the first one of the same memory.

    Raises:
      WrongWeights: variables hold different numbers for one place, or a place is in none.
    """
    masks = {name: np.zeros(arrays[name].shape, bool) for name in set(tied.values())}
    written = {name: masks[first] for name, first in tied.items()}
    for choice, _ in decided.values():
        is_cell = choice.torch.kind in GATES
        for fill in choice.fills:
            value = np.asarray(fill.slot.value)
            for name, members, places in _places(fill, arrays, is_cell):
                _write(fill, name, arrays[name], places, value[members], written[name])
    _check_written(decided, written)
    _check_turned(decided)


def _places(fill: Fill, arrays: Arrays, is_cell: bool) -> Iterable[tuple[str, Any, np.ndarray]]:
    """Yields (torch name, which of the variable's numbers, their places in the torch array).

    The bias of a recurrent cell may be the sum of two of torch's: then the first is all of it.
    """
    names = dict.fromkeys(fill.tensor.sources)
    values = {name: arrays[name] for name in names}
    starts, start = {}, 1  # 0 is no place
    for i, name in enumerate(names):
        size = values[name].size
        positions = np.arange(start, start + size).reshape(values[name].shape)
        arrays[name] = positions * 0 if is_cell and i else positions
        starts[name], start = start, start + size
    try:
        positions = fill.value()
    finally:
        arrays.update(values)
    if len(names) == 1:
        yield next(iter(names)), ..., positions - 1
        return
    for name in names:
        members = (positions >= starts[name]) & (positions < starts[name] + values[name].size)
        if members.any():
            yield name, members, positions[members] - starts[name]


def _write(
    fill: Fill,
    name: str,
    array: np.ndarray,
    places: np.ndarray,
    value: np.ndarray,
    written: np.ndarray,
) -> None:
    with np.errstate(over="ignore"):  # refused below
        new = value.astype(array.dtype)
    if not np.isfinite(new).all() and np.isfinite(value).all():
        raise WrongWeights(
            f"{fill.slot.name} does not fit {array.dtype}",
            where=name,
            why=f"it holds values up to {np.abs(value).max():.3g}",
            do="call torch_module.float(), or .bfloat16(), first",
        )
    # a view where memory is contiguous; .flat also writes to other memory, but slowly
    flat = array.reshape(-1) if array.flags.c_contiguous else array.flat
    mask = written.reshape(-1)
    repeated = mask[places]
    if repeated.any() and not np.array_equal(flat[places[repeated]], new[repeated], equal_nan=True):
        raise WrongWeights(
            f"{fill.slot.name} and another variable hold different values for {name}",
            where=f"{fill.slot.name} -> {fill.tensor.label}",
            why="torch has one tensor for both: its weights are tied",
            do="untie torch's (a config's tie_word_embeddings=False), or "
            f"match={{{fill.slot.name!r}: None}} to leave this one out",
        )
    flat[places] = new
    mask[places] = True


def cell_biases(decided: Mapping[Flax, tuple[Choice, str]]) -> list[str]:
    """Returns the names of all biases of recurrent cells: one without a variable is zero."""
    cells = [choice.torch for choice, _ in decided.values() if choice.torch.kind in GATES]
    tensors = [x for cell in cells for role, x in cell.tensors.items() if "bias" in role]
    return [name for tensor in tensors for name in tensor.sources]


def _check_written(
    decided: Mapping[Flax, tuple[Choice, str]], written: Mapping[str, np.ndarray]
) -> None:
    """Raises WrongWeights if a torch array that is filled is filled in part."""
    fills = [fill for choice, _ in decided.values() for fill in choice.fills]
    biases = cell_biases(decided)
    for name in dict.fromkeys(name for fill in fills for name in fill.tensor.sources):
        if name not in biases and not written[name].all():
            raise WrongWeights(
                f"{name} is filled in part",
                where=name,
                why=f"no variable holds {written[name].size - written[name].sum()} of its numbers",
                do="give the variables of all parts",
            )


def _check_turned(decided: Mapping[Flax, tuple[Choice, str]]) -> None:
    """Raises WrongWeights unless the arrays, in the variables' layouts, are the variables."""
    for choice, _ in decided.values():
        for fill in choice.fills:
            value, dtype = np.asarray(fill.slot.value), fill.value().dtype
            if not np.array_equal(fill.value(), value.astype(dtype), equal_nan=True):
                raise WrongWeights(
                    f"{fill.tensor.label} does not give {fill.slot.name} back",
                    where=fill.layout.name,
                    why="the layout is more than an order of numbers",
                    do="please report this layer",
                )
