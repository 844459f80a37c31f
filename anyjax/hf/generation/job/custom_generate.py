"""A model as transformers' own Python code sees it: torch tensors in and out, computed in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import torch
from transformers import GenerationMixin

from anyjax import trees
from anyjax.errors import AnyjaxError, Unsupported, WrongArguments
from anyjax.hf.generation.request.request import as_torch
from anyjax.hf.loading.decide import quiet
from anyjax.model import Model
from anyjax.torch.core import interop

# Classes whose own generate calls the common one, and their options that need more than ids.
WRAPS = {"WhisperForConditionalGeneration": ("return_token_timestamps", "no_speech_threshold")}


class Standin:
    """The methods that a stand-in replaces in its transformers class."""

    converted: Model
    device = torch.device("cpu")

    def __call__(self, *args, **kwargs):
        """Runs the forward pass."""
        return to_torch(self.converted(*args, **kwargs))

    def to(self, *args, **kwargs):
        """Returns itself: it stays where its arrays are."""
        return self


class Common(GenerationMixin):
    """A base class behind the model's class, whose ``super().generate`` is the common one here."""

    common: Callable

    def generate(self, inputs=None, **options):
        """Runs the common generate, in JAX."""
        ignored_if_empty = (
            "stopping_criteria",
            "synced_gpus",
        )  # refused where they ask for something
        asking = {k: v for k, v in options.items() if k not in ignored_if_empty or v}
        return to_torch(self.common(inputs, asking))


def standin(model: Model, front: type, *behind: type, **attributes: Any) -> Any:
    """Returns an object whose bases are ``front``, the model's class and ``behind``."""
    module = model.source.module
    kind = type(module)
    out: Any = object.__new__(type(kind.__name__, (front, kind, *behind), {}))
    vars(out).update(vars(module), converted=model, **attributes)
    return out


def run_own_generate(
    model: Model, inputs: object, options: dict[str, Any], common: Callable
) -> Any:
    """Runs the class's own generate around ``common(inputs, options)``; returns JAX arrays.

    Raises:
      Unsupported: an option that needs more of the model than its tokens.
      WrongArguments: transformers refuses the options.
    """
    kind = type(model.source.module)
    for name in WRAPS[kind.__name__]:
        default = getattr(model.source.module.generation_config, name, None)
        if options.get(name, default) not in (None, False):
            raise Unsupported(
                f"the option {name}",
                why="it needs attention weights or further runs of the model",
                do="leave it out",
            )
    torch_options = {k: as_torch(v) for k, v in options.items()}
    wrapper = standin(model, Standin, Common, common=common)
    try:
        with quiet():
            first = () if inputs is None else (as_torch(inputs),)
            out = wrapper.generate(*first, **torch_options)
    except AnyjaxError:
        raise
    except ValueError as error:
        text = " ".join(str(error).split())[:300]
        raise WrongArguments(text, do=f"see transformers' {kind.__name__}.generate") from error
    trees.register(out)
    return jax.tree.map(
        lambda x: jax.device_put(x.numpy()) if isinstance(x, torch.Tensor) else x, out
    )


def to_torch(tree):
    """Returns an output with torch tensors for arrays; integers are 64-bit, as in torch."""

    def leaf_to_torch(x):
        if not isinstance(x, jax.Array):
            return x
        tensor = interop.to_torch(x)
        return tensor.long() if tensor.dtype is torch.int32 else tensor

    return jax.tree.map(leaf_to_torch, trees.register(tree))
