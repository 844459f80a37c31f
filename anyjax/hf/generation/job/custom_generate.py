"""A model as transformers' own Python code sees it: torch tensors in and out, computed in JAX."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
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
from anyjax.torch.source import source_of

# Classes whose loops are saved, too, and their options that need more than ids.
WRAPS = {"WhisperForConditionalGeneration": ("return_token_timestamps", "no_speech_threshold")}
REFUSED = {"stopping_criteria", "synced_gpus"}  # where they ask for something
NAMES = [*inspect.signature(GenerationMixin.generate).parameters][1:]


def has_own(module: torch.nn.Module) -> bool:
    """Returns whether its class generates in a way of its own."""
    return type(module).generate is not GenerationMixin.generate


def refused(module: torch.nn.Module) -> Unsupported:
    """Returns the error for a way of generating that nothing here can follow."""
    return Unsupported(
        f"{type(module).__name__} has a way of generating of its own",
        why="it goes on in a way that is no program, or is wanted where one program has to hold it",
        do="generate with transformers: model.to_torch().generate(...)",
    )


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

    def generate(self, inputs=None, *more, **options):
        """Runs the common generate, in JAX."""
        options |= zip(NAMES[1:], more)
        options = {k: v for k, v in options.items() if v is not None}
        for name in REFUSED & {*options}:
            if not options[name]:
                del options[name]
        return to_torch(self.common(inputs, options))


def standin(model: Model, front: type, *behind: type, **attributes: Any) -> Any:
    """Returns an object whose bases are ``front``, the model's class and ``behind``."""
    module = model.source.module
    kind = type(module)
    out: Any = object.__new__(type(kind.__name__, (front, kind, *behind), {}))
    vars(out).update(vars(module), converted=model, **attributes)
    return out


class Parts(dict):
    """The parts of a model that have names, made when they are asked for."""

    def __init__(self, names: Iterable[str], make: Callable[[str], Any]):
        super().__init__(dict.fromkeys(names))
        self.make = make

    def __getitem__(self, name: str) -> Any:
        if super().__getitem__(name) is None:
            self[name] = self.make(name)
        return super().__getitem__(name)


def whole(model: Model, common_of: Callable[[Model], Callable]) -> Any:
    """Returns a stand-in whose parts, weights and common generate are JAX's, too."""
    module: Any = model.source.module
    arrays = {**model.params, **model.state}

    def part(name: str) -> Any:
        source = source_of(module._modules[name])  # whose own tensors may have no values
        inside = {k.removeprefix(f"{name}."): v for k, v in arrays.items()}
        params, state = (
            {k: inside[k] for k in x} for x in (source.slots.params, source.slots.state)
        )
        return whole(Model(params, state, source), common_of)

    children = [k for k, x in module._modules.items() if x is not None]
    tensors = [k for k in (*module._parameters, *module._buffers) if k in arrays]
    return standin(
        model,
        Standin,
        *([Common] if isinstance(module, GenerationMixin) else []),
        common=common_of(model),
        _modules=Parts(children, part),
        _parameters=Parts(tensors, lambda name: interop.to_torch(arrays[name])),
        _buffers={},
    )


def run_own_generate(
    model: Model, inputs: object, options: dict[str, Any], common_of: Callable[[Model], Callable]
) -> Any:
    """Runs the class's own generate around ``common_of(part)(inputs, options)``, the common one of
    the model or of a part of it; returns JAX arrays.

    Raises:
      Unsupported: an option that needs more of the model than its tokens; it runs parts of the
        model.
      WrongArguments: transformers refuses the options.
    """
    module: Any = model.source.module
    kind = type(module)
    for name in WRAPS.get(kind.__name__, ()):
        default = getattr(module.generation_config, name, None)
        if options.get(name, default) not in (None, False):
            raise Unsupported(
                f"the option {name}",
                why="it needs attention weights or further runs of the model",
                do="leave it out",
            )
    torch_options = {k: as_torch(v) for k, v in options.items()}
    wrapper = whole(model, common_of)
    try:
        with quiet():
            first = [] if inputs is None else [as_torch(inputs)]
            if first and "input_ids" in inspect.signature(kind.generate).parameters:
                torch_options["input_ids"] = first.pop()
            out = wrapper.generate(*first, **torch_options)
    except AnyjaxError:
        raise
    except ValueError as error:
        text = " ".join(str(error).split())[:300]
        raise WrongArguments(text, do=f"see transformers' {kind.__name__}.generate") from error
    except Exception as error:  # in code of transformers' own
        raise refused(module) from error
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
