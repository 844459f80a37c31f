"""A model as transformers' own Python code sees it: torch tensors in and out, computed in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import torch
from transformers import GenerationMixin

from tojax import trees
from tojax.errors import TojaxError, Unsupported, WrongArguments
from tojax.hf.generation.request.request import as_torch
from tojax.hf.loading.module import quiet
from tojax.model import Model
from tojax.torch.core import interop

# Classes whose own generate prepares calls of the common one, and what of it reads more than ids.
WRAPS = {"WhisperForConditionalGeneration": ("return_token_timestamps", "no_speech_threshold")}


class Standin:
    """What a stand-in does itself; the rest is the transformers class."""

    converted: Model
    device = torch.device("cpu")

    def __call__(self, *args, **kwargs):
        """The forward pass."""
        return to_torch(self.converted(*args, **kwargs))

    def to(self, *args, **kwargs):
        """It stays where its arrays are."""
        return self


class Common(GenerationMixin):
    """Behind a class in its method resolution order: what its ``super().generate`` calls."""

    common: Callable

    def generate(self, inputs=None, **options):
        """The common generate, in JAX."""
        empty = ("stopping_criteria", "synced_gpus")  # refused where they ask for something
        given = {k: v for k, v in options.items() if k not in empty or v}
        return to_torch(self.common(inputs, given))


def standin(model: Model, front: type, *behind: type, **attributes: Any) -> Any:
    """An object of the model's class with ``front`` before it and ``behind`` after it."""
    module = model.source.module
    kind = type(module)
    out: Any = object.__new__(type(kind.__name__, (front, kind, *behind), {}))
    vars(out).update(vars(module), converted=model, **attributes)
    return out


def wrapped(model: Model, inputs: Any, options: dict[str, Any], common: Callable) -> Any:
    """The class's own generate around ``common(inputs, options)``; arrays of JAX come back.

    Raises:
      Unsupported: an option for which it would look at more of the model than its tokens.
      WrongArguments: what transformers refuses.
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
    given = {k: as_torch(v) for k, v in options.items()}
    inside = standin(model, Standin, Common, common=common)
    try:
        with quiet():
            first = () if inputs is None else (as_torch(inputs),)
            out = inside.generate(*first, **given)
    except TojaxError:
        raise
    except ValueError as error:
        text = " ".join(str(error).split())[:300]
        raise WrongArguments(text, do=f"see transformers' {kind.__name__}.generate") from error
    trees.register(out)
    return jax.tree.map(
        lambda x: jax.device_put(x.numpy()) if isinstance(x, torch.Tensor) else x, out
    )


def to_torch(tree):
    """Arrays of an output as torch tensors; integers are 64 bits wide, as they are in torch."""

    def one(x):
        if not isinstance(x, jax.Array):
            return x
        tensor = interop.to_torch(x)
        return tensor.long() if tensor.dtype is torch.int32 else tensor

    return jax.tree.map(one, trees.register(tree))
