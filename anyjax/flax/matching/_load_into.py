"""``load_into``: weights of torch in a hand-written flax module of the same architecture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, Unpack, overload

import flax.linen as nn
import jax.numpy as jnp

from anyjax.flax.matching import flax_layers
from anyjax.flax.matching.match_layers import (
    Matching,
    as_arguments,
    as_torch_arguments,
    match_layers,
)
from anyjax.flax.matching.report import Match, Report
from anyjax.flax.matching.sides import JaxSide, jax_side
from anyjax.flax.matching.stored import read_weights
from anyjax.typing import ArrayLike, Output, T


class Options(TypedDict, total=False):
    """The options of ``load_into``, which type checkers read here."""

    variables: object
    example: tuple[object, ...] | ArrayLike | None
    torch_example: tuple[object, ...] | Mapping[str, object] | ArrayLike | None
    kwargs: Mapping[str, object] | None
    apply: Callable[..., object] | None
    match: Mapping[str, object] | None
    ignore: Iterable[str]
    tolerance: float


@overload
def load_into(
    flax_module: nn.Module, source: object, **options: Unpack[Options]
) -> tuple[dict[str, Output], Report]: ...
@overload
def load_into(flax_module: T, source: object, **options: Unpack[Options]) -> tuple[T, Report]: ...


def load_into(
    flax_module: object,
    source: object,
    *,
    variables: object = None,
    example: tuple[object, ...] | ArrayLike | None = None,
    torch_example: tuple[object, ...] | Mapping[str, object] | ArrayLike | None = None,
    kwargs: Mapping[str, object] | None = None,
    apply: Callable[..., object] | None = None,
    match: Mapping[str, object] | None = None,
    ignore: Iterable[str] = (),
    tolerance: float = 1e-4,
) -> Any:
    """Fills a hand-written JAX model with the weights of a torch module of the same architecture.

    Layers are matched by their names in one spelling, then by shape, then by running submodules of
    both sides on the same numbers. Kernels are transposed by the kind of layer; packed attention
    and recurrent weights are split; rows of a matrix after a flattened feature map are reordered
    where the outputs agree only so. Ambiguous layers are an error, and then nothing is changed.

    Args:
      flax_module: an ``nnx.Module`` (an abstract one of ``nnx.eval_shape``, too), which is filled
        in place, a ``linen.Module``, an ``equinox.Module``, or any pytree of named arrays.
      source: a ``torch.nn.Module``, its ``state_dict()``, a mapping of names to arrays, a
        ``anyjax.Model``, a safetensors file, or a folder of them. Outputs can decide only with a
        module, which can be run.
      variables: of a Linen module, for which ``example`` gives their shapes else; or the
        ``equinox.nn.State`` of an Equinox module with BatchNorm.
      example: positional arguments of the JAX model, or its only one. With them both models run,
        in evaluation mode, and their first outputs must be equal.
      torch_example: the same for torch, or a mapping of names. By default those of
        ``example``, or if torch does not take these, with channels second instead of last.
      kwargs: named arguments for the flax module's call, such as ``{"train": False}``.
      apply: how the JAX model is called: ``apply(model, *example)``, of Linen and of pytrees
        ``apply(variables, *example)``; pytrees cannot be run without. By default Equinox modules
        are mapped over the first axis.
      match: your decisions by flax path: the torch name, a pair (torch name, layout), an array in
        the variable's own layout, or None to keep the value. ``*`` stands for one step.
      ignore: torch names that are not loaded; ``*`` stands for one step.
      tolerance: the largest difference of outputs, as a fraction of the largest value; 8 eps of
        the variables' dtype where that is larger.

    Returns:
      The filled nnx module, Linen's new variables, or the new Equinox module or pytree (with a
      State both); and the report, which prints as a table.
      Arrays have the flax variables' dtypes.

    Raises:
      WrongWeights: variables or tensors are left, layers fit more than one way, or the outputs
        differ; all such layers are listed, or the first submodule that differs.
      WrongArguments: an argument is not what it should be.
      BadCheckpoint: a file cannot be read.
      ForwardFailed: torch does not take the example.

    Example:
      >>> import jax.numpy as jnp, torch
      >>> from flax import nnx
      >>> from anyjax.flax import load_into
      >>> class Net(nnx.Module):
      ...   def __init__(self, rngs):
      ...     self.inner, self.outer = nnx.Linear(3, 8, rngs=rngs), nnx.Linear(8, 2, rngs=rngs)
      ...   def __call__(self, x):
      ...     return self.outer(nnx.relu(self.inner(x)))
      >>> theirs = torch.nn.Sequential(
      ...   torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
      >>> net, report = load_into(Net(nnx.Rngs(0)), theirs, example=(jnp.ones((4, 3)),))
      >>> report["inner/kernel"].torch, report["inner/kernel"].layout
      ('0.weight', 'transposed')
    """
    arguments, torch_example = as_arguments(example), as_torch_arguments(torch_example)
    stored = read_weights(source)
    side = jax_side(flax_module, variables, arguments, kwargs, apply)
    matching = match_layers(stored, side, arguments, torch_example, match or {}, ignore, tolerance)
    return _write(side, matching, matching.check_outputs())


def _write(side: JaxSide, matching: Matching, checked: str) -> tuple[Any, Report]:
    """Writes the user's values and the decided layers; returns the result and the report."""
    matches, filled = [], {}
    slots = {s.path: s for s in side.slots()}
    placed = lambda p, v: flax_layers.place_like(v.astype(slots[p].dtype), slots[p].value)
    for path, value in matching.values.items():
        if value is not None:
            filled[path] = placed(path, value)
            matches.append(Match(slots[path].name, "(array)", "as it is", "given"))
    for choice, how in matching.pairing.decided.values():
        for fill in choice.fills:
            value = fill.value()
            dtype = jnp.dtype(fill.slot.dtype)
            cast = "" if value.dtype == dtype else f"{value.dtype} -> {dtype}"
            filled[fill.slot.path] = placed(fill.slot.path, value)
            name = fill.slot.name
            matches.append(Match(name, fill.tensor.label, fill.layout.name, how, cast))
    stays = tuple(s.name for s in slots.values() if s.path not in filled)
    left_out, notes = tuple(matching.left_out), tuple(matching.notes)
    return side.write(filled), Report(tuple(matches), left_out, stays, notes, checked)
