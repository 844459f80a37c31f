"""The sides of a comparison, by what the model and its reference are."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from anyjax.errors import Unsupported
from anyjax.model import Model
from anyjax.parity.sides.golden import GoldenSide
from anyjax.parity.sides.jax_side import JaxSide
from anyjax.parity.sides.side import Call, ModelSide, Side

if TYPE_CHECKING:
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

            from anyjax.parity.sides.flax_side import FlaxSide

            if isinstance(model, (nnx.Module, linen.Module)):
                return FlaxSide(model, call)
        raise Unsupported(
            f"verify of {type(model).__name__}",
            why="it is neither a Model nor a Flax module",
            do="convert it before: anyjax.verify(anyjax.from_torch(module), *inputs)",
        )
    if model.source.framework != "tensorflow":
        return JaxSide(model, call, without_dropout)
    from anyjax.parity.sides.tensorflow_side import GraphSide

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
    if isinstance(model, Model) and model.source.framework == "tensorflow":
        from anyjax.parity.sides.tensorflow_side import side

        return side(model, reference, call)
    if reference is None and isinstance(model, Model) and model.source.framework == "torch":
        module = model.source.module
        reference = model.to_torch() if any(x.is_meta for x in module.parameters()) else module
    if "torch" in sys.modules:
        import torch

        from anyjax.parity.sides.torch_side import TorchSide

        if isinstance(reference, torch.nn.Module):
            return TorchSide(reference, call, _modes(model))
    raise Unsupported(
        f"verify with {type(reference).__name__} as the reference",
        where=getattr(source, "name", type(model).__name__),
        why="it is neither a torch module, a Model, nor a folder",
        do="pass reference=module, or reference=another_model",
    )


def _modes(model: Model | nnx.Module | linen.Module) -> dict[str, bool]:
    """Returns the mode of each submodule of a torch model, by path."""
    if not isinstance(model, Model) or model.source.framework != "torch":
        return {}
    named = model.source.module.named_modules()
    modes: Any = model.source.training  # a tuple, of torch
    return {path: mode for (path, _), mode in zip(named, modes)}
