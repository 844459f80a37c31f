"""The sides of a comparison, by what the model and its reference are."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from anyjax.compare.side import Call, ModelSide, Side
from anyjax.compare.sides.golden import GoldenSide
from anyjax.compare.sides.jax_side import JaxSide
from anyjax.errors import Unsupported, WrongArguments
from anyjax.model import Model

if TYPE_CHECKING:
    import torch
    from flax import linen, nnx


def model_side(
    model: Model | nnx.Module | linen.Module, call: Call, without_dropout: bool = False
) -> ModelSide:
    """Returns a model as a side, by the framework that it came from.

    Raises:
      Unsupported: it is no model.
    """
    if not isinstance(model, Model):
        if "flax" in sys.modules:
            from flax import linen, nnx

            from anyjax.compare.sides.flax_side import FlaxSide

            if isinstance(model, (nnx.Module, linen.Module)):
                return FlaxSide(model, call)
        raise Unsupported(
            f"verify of {type(model).__name__}",
            why="it is neither a Model nor a Flax module",
            do="convert it before: anyjax.verify(anyjax.from_torch(module), *inputs)",
        )
    if model.source.framework != "tensorflow":
        return JaxSide(model, call, without_dropout)
    from anyjax.compare.sides.tensorflow_side import GraphSide

    return GraphSide(model, call)


def side_of(model: Model | nnx.Module | linen.Module, reference: object, call: Call) -> Side:
    """Returns what a model is compared with.

    Raises:
      Unsupported: there is nothing of that kind.
    """
    if isinstance(reference, (str, os.PathLike)):
        return GoldenSide(reference)
    if isinstance(reference, Model):
        return model_side(reference, call)
    source = model.source if isinstance(model, Model) else None
    trained: dict[str, torch.Tensor] = {}
    if isinstance(model, Model) and model.source.framework == "tensorflow":
        from anyjax.compare.sides.tensorflow_side import side

        return side(model, reference, call)
    if reference is None and isinstance(model, Model) and model.source.framework == "torch":
        module = model.source.module
        reference = model.to_torch() if any(x.is_meta for x in module.parameters()) else module
        trained = _trained(model, reference)
    elif reference is not None:
        _check_modes(model, reference)
    if "torch" in sys.modules:
        import torch

        from anyjax.compare.sides.torch_side import TorchSide

        if isinstance(reference, torch.nn.Module):
            side_of_torch = TorchSide(reference, call, _modes(model), trained)
            side_of_torch.note = _note(model, reference, trained)
            return side_of_torch
    raise Unsupported(
        f"verify with {type(reference).__name__} as the reference",
        where=getattr(source, "name", type(model).__name__),
        why="it is neither a torch module, a Model, nor a folder",
        do="pass reference=module, or reference=another_model",
    )


def _trained(model: Model, module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns the arrays of a torch model that its module has other values for, as tensors."""
    from anyjax.torch.core import interop

    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    arrays = {k: x for k, x in {**model.params, **model.state}.items() if k in tensors}
    as_tensors = {k: interop.to_torch(x).to(tensors[k].dtype) for k, x in arrays.items()}
    return {
        k: x
        for k, x in as_tensors.items()
        if x.shape == tensors[k].shape and not x.equal(tensors[k].detach())
    }


def _note(model: object, reference: torch.nn.Module, trained: dict[str, torch.Tensor]) -> str:
    """Says which weights differ, and whose are taken."""
    names = trained
    if not names and isinstance(model, Model) and model.source.framework == "torch":
        names = _trained(model, reference)
    shown = ", ".join([*names][:4]) + ", ..." * (len(names) > 4)
    if not names:
        return ""
    whose = "the model's are taken on both sides" if trained else "each side has its own"
    return f"weights of the model differ from those of the module ({whose}): {shown}"


def _check_modes(model: Model | nnx.Module | linen.Module, reference: object) -> None:
    """Raises WrongArguments where modules of the same paths would drop other values, or take the
    statistics of the batch on one side alone.
    """
    modes = _modes(model)
    if not modes or not isinstance(model, Model) or not hasattr(reference, "named_modules"):
        return
    of_reference = dict(reference.named_modules())
    for path, module in model.source.module.named_modules():
        twins = module, of_reference.get(path)
        matters = any(hasattr(x, k) for x in twins for k in ("p", "running_mean"))
        for name in ("training", "p", "momentum", "track_running_stats"):
            pair = [getattr(x, name, None) for x in twins]
            pair[0] = modes[path] if name == "training" else pair[0]
            if twins[1] is not None and matters and pair[0] != pair[1]:
                raise WrongArguments(
                    f"{path or 'the model'} has {name}={pair[0]}, and in the reference {pair[1]}",
                    why="the two compute something else, whatever their weights are",
                    do="call model.eval() and reference.eval(), or train() on both; give both the "
                    "same rates",
                )


def _modes(model: Model | nnx.Module | linen.Module) -> dict[str, bool]:
    """Returns the mode of each submodule of a torch model, by path."""
    if not isinstance(model, Model) or model.source.framework != "torch":
        return {}
    named = model.source.module.named_modules()
    modes: Any = model.source.training  # a tuple, of torch
    return {path: mode for (path, _), mode in zip(named, modes)}
