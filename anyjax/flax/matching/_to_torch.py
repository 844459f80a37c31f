"""``to_torch``: weights of a JAX model in a torch module of the same architecture."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import numpy as np
from flax import nnx

from anyjax.errors import WrongArguments
from anyjax.flax.matching.backwards import Arrays, cell_biases, stored_arrays, write_back
from anyjax.flax.matching.match_layers import (
    Matching,
    as_arguments,
    as_torch_arguments,
    match_layers,
)
from anyjax.flax.matching.read_params import read_params
from anyjax.flax.matching.report import Match, Report
from anyjax.flax.matching.sides import JaxSide, jax_side
from anyjax.flax.matching.stored import as_numpy
from anyjax.trees import is_array
from anyjax.typing import PyTree

if TYPE_CHECKING:
    import torch

    from anyjax.typing import ArrayLike, M


def to_torch(
    jax_model: object,
    torch_module: M,
    *,
    variables: object = None,
    example: tuple[object, ...] | ArrayLike | None = None,
    torch_example: tuple[object, ...] | Mapping[str, object] | ArrayLike | None = None,
    kwargs: Mapping[str, object] | None = None,
    apply: Callable[..., object] | None = None,
    match: Mapping[str, object] | None = None,
    ignore: Iterable[str] = (),
    tolerance: float = 1e-4,
) -> tuple[M, Report]:
    """Fills a torch module with the weights of a JAX model of the same architecture.

    Layers are matched as ``load_into`` matches them, with random numbers in a copy of the torch
    module, and every layout is turned around: kernels, convolutions, packed and separate attention,
    recurrent cells. With an example both models then run with the JAX model's weights, and must
    agree. Ambiguous layers are an error; an error leaves the module as it was.

    Args:
      jax_model: an ``nnx.Module``, a ``linen.Module``, an ``equinox.Module``, a pytree of named
        arrays, or the path of a checkpoint: Orbax, msgpack, safetensors or npz, of params or of a
        train state.
      torch_module: the module that is filled in place. Its dtypes stay; the report tells casts.
      variables: of a Linen module, or the ``equinox.nn.State`` of an Equinox module. Of an
        ``nnx.Module`` the values in place of its own. A pytree, or a checkpoint's path.
      example, torch_example, kwargs, apply: as ``load_into`` takes them. Without an example nothing
        is proved by running, which the report says.
      match: your decisions by flax path: the torch name, a pair (torch name, layout), or None for a
        variable that torch does not have. ``*`` stands for one step.
      ignore: torch names that stay as they are; ``*`` stands for one step.
      tolerance: the largest difference of outputs, as ``load_into`` takes it.

    Returns:
      The module; and the report, which prints as a table.

    Raises:
      WrongWeights: layers have no counterpart, or several; variables disagree on one tensor; or the
        outputs differ, with the first submodule that does.
      WrongArguments: an argument is not what it should be.
      BadCheckpoint: a file cannot be read, or holds no params, or several.
      ForwardFailed: a side does not take the example.

    Example:
      >>> import jax.numpy as jnp, torch
      >>> from flax import nnx
      >>> net = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
      >>> x, linear = jnp.ones((4, 3)), torch.nn.Linear(3, 2)
      >>> theirs, report = anyjax.flax.to_torch(net, linear, example=x)
      >>> print(report["kernel"].torch, report["kernel"].layout)
      weight transposed
      >>> bool((theirs.weight.detach().numpy() == net.kernel[...].T).all())
      True
    """
    _check_module(torch_module)
    arguments, match = as_arguments(example), dict(match or {})
    torch_example = as_torch_arguments(torch_example)
    if values := [key for key, value in match.items() if is_array(value)]:
        raise WrongArguments(
            f"match[{values[0]!r}] is an array",
            where="to_torch",
            why="the values come from the JAX model",
            do="name the torch tensor, or None for a variable that torch does not have",
        )
    side = _side(jax_model, variables, arguments, kwargs, apply)
    probe = _randomized(torch_module)
    state = probe.state_dict()
    arrays = {name: as_numpy(x) for name, x in state.items()}
    stored = stored_arrays(arrays, probe)
    matching = match_layers(stored, side, arguments, torch_example, match, ignore, tolerance)
    write_back(matching.pairing.decided, arrays, _tied(state))
    checked = matching.again(stored, torch_example).check_outputs()
    _assign(torch_module, {name: state[name] for name in _filled(matching)})
    return torch_module, _report(matching, side, arrays, checked)


def _check_module(module: torch.nn.Module) -> None:

    import torch

    if not isinstance(module, torch.nn.Module):
        raise WrongArguments(
            f"a {type(module).__name__} is no torch module",
            where="the second argument of to_torch",
            why="its layers say where the weights belong",
            do="build the module: Class(...), or transformers' AutoModel.from_config(config)",
        )
    if any(x.is_meta for x in module.state_dict().values()):
        raise WrongArguments(
            f"the {type(module).__name__} has tensors without values",
            where='device "meta"',
            why="tensors that no checkpoint holds have to be computed by its constructor",
            do="build it on the CPU",
        )


def _side(
    model: PyTree,
    variables: PyTree,
    example: tuple | None,
    kwargs: Mapping[str, Any] | None,
    apply: Callable[..., PyTree] | None,
) -> JaxSide:
    """Returns the JAX side, with its values.

    Raises:
      WrongArguments: it has none.
    """
    model, variables = (
        read_params(x) if isinstance(x, str | os.PathLike) else x for x in (model, variables)
    )
    if isinstance(model, nnx.Module) and variables is not None:
        model, variables = _with_values(model, variables), None
    if isinstance(model, nn.Module) and variables is not None:
        has_collections = isinstance(variables.get("params"), Mapping)  # else it is a parameter
        variables = variables if has_collections else {"params": variables}
    side = jax_side(model, variables, example, kwargs, apply)
    abstract = [s.name for s in side.slots() if isinstance(s.value, jax.ShapeDtypeStruct)]
    if abstract:
        raise WrongArguments(
            f"{abstract[0]} has no value",
            where=type(model).__name__,
            why="the module is abstract, or Linen's variables are missing",
            do="give variables=..., the params or the path of a checkpoint",
        )
    return side


def _with_values(module: nnx.Module, values: PyTree) -> nnx.Module:
    """Returns a copy of an nnx module with other values."""
    from anyjax.flax.matching.sides.pytree_side import PytreeSide

    filled = nnx.clone(module)
    side = jax_side(filled)
    by_name = {s.name: s.value for s in PytreeSide(values, {}, None).slots()}
    missing = [s.name for s in side.slots() if s.needed and s.name not in by_name]
    if missing:
        raise WrongArguments(
            f"variables lack {', '.join(missing[:5])}" + (", ..." if len(missing) > 5 else ""),
            where=type(module).__name__,
            why=f"they have {', '.join(list(by_name)[:5])}, ...",
            do="give the state of this module",
        )
    side.write({s.path: by_name[s.name] for s in side.slots() if s.name in by_name})
    return filled


def _randomized(module: torch.nn.Module) -> torch.nn.Module:
    """Returns a copy with random weights, no two alike, that keep values at the size of one."""
    import torch
    from torch.nn.utils import parametrize

    probe = copy.deepcopy(module)
    recurrent = torch.nn.RNNBase, torch.nn.RNNCellBase
    for inner in probe.modules():
        for leaf in list(getattr(inner, "parametrizations", ())):
            parametrize.remove_parametrizations(inner, leaf)
    generator = torch.Generator().manual_seed(0)
    biases = {
        id(x)
        for inner in probe.modules()
        if isinstance(inner, recurrent)
        for name, x in inner.named_parameters()
        if "bias" in name
    }
    weights = {id(x) for x in probe.parameters()}
    with torch.no_grad():
        for name, x in probe.state_dict(keep_vars=True).items():
            if not x.is_floating_point() or (id(x) not in weights and "running_" not in name):
                continue
            noise = torch.randn(x.shape, generator=generator)
            if id(x) in biases:  # a cell may have no place for one: it is zero there
                x.zero_()
            elif "var" in name:
                x.copy_(1 + 0.1 * noise.abs())
            elif x.ndim < 2:
                x.copy_((0 if "bias" in name or "mean" in name else 1) + 0.1 * noise)
            else:
                x.copy_(noise / max(x[0].numel(), 1) ** 0.5)
    return probe


def _tied(state: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Returns for each name the first one of the same memory."""
    first: dict[tuple, str] = {}
    return {k: first.setdefault((x.data_ptr(), x.shape, x.stride()), k) for k, x in state.items()}


def _filled(matching: Matching) -> list[str]:
    decided = matching.pairing.decided
    fills = [fill for choice, _ in decided.values() for fill in choice.fills]
    names = [name for fill in fills for name in fill.tensor.sources]
    return [*dict.fromkeys([*names, *cell_biases(decided)])]


def _assign(module: torch.nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    """Writes all values into the module; those of parametrized weights by their inverse."""
    import torch

    state = module.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, value in values.items():
            if name in state:
                state[name].copy_(value)
            else:
                path, _, leaf = name.rpartition(".")
                setattr(module.get_submodule(path), leaf, value)


def _report(matching: Matching, side: JaxSide, arrays: Arrays, checked: str) -> Report:
    matches = []
    for choice, how in matching.pairing.decided.values():
        for fill in choice.fills:
            have, want = np.dtype(fill.slot.dtype), arrays[fill.tensor.sources[0]].dtype
            cast = "" if have == want else f"{have} -> {want}"
            label, layout = fill.tensor.label, fill.layout.name
            matches.append(Match(fill.slot.name, label, layout, how, cast))
    matched = {match.flax for match in matches}
    stays = tuple(s.name for s in side.slots() if s.name not in matched)
    notes = tuple(matching.notes)
    return Report(tuple(matches), tuple(matching.left_out), stays, notes, checked)
