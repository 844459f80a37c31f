"""Any PyTorch, Hugging Face, TensorFlow or StableHLO model as a pure JAX function plus params.

The names below are loaded when they are first used: ``import tojax`` imports no framework.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tojax.frontends import convert
    from tojax.hf._save_pretrained import save_pretrained
    from tojax.hf.generation._generate import generate
    from tojax.hf.generation.public_cache import Cache
    from tojax.hf.load import from_pretrained
    from tojax.model import Model, load
    from tojax.stablehlo import from_stablehlo
    from tojax.tensorflow import from_tensorflow
    from tojax.torch import from_torch, lowers
    from tojax.torch.torchax import extract_jax

_HOME = {
    "Cache": "tojax.hf.generation.public_cache",
    "Model": "tojax.model",
    "convert": "tojax.frontends",
    "extract_jax": "tojax.torch.torchax",
    "from_pretrained": "tojax.hf.load",
    "from_stablehlo": "tojax.stablehlo",
    "from_tensorflow": "tojax.tensorflow",
    "from_torch": "tojax.torch",
    "generate": "tojax.hf.generation._generate",
    "load": "tojax.model",
    "lowers": "tojax.torch",
    "save_pretrained": "tojax.hf._save_pretrained",
}
__all__ = [
    "Cache",
    "Model",
    "convert",
    "extract_jax",
    "from_pretrained",
    "from_stablehlo",
    "from_tensorflow",
    "from_torch",
    "generate",
    "load",
    "lowers",
    "save_pretrained",
]

# Methods of Model that floors above it add: model.generate(...) is tojax.generate(model, ...).
_METHODS = {"cache": "Cache.of", "generate": "generate", "save_pretrained": "save_pretrained"}


# What torch, Flax and Keras call what a Model has under another name.
_INSTEAD = {
    **dict.fromkeys(("bind", "load_state_dict"), "use model.with_params(params), a new Model"),
    **dict.fromkeys(("forward", "predict"), "call it: model(*args), or model.apply(params, *args)"),
    **dict.fromkeys(("init", "parameters", "named_parameters"), "the arrays are model.params"),
    **dict.fromkeys(("state_dict", "variables"), "the arrays are model.params and model.state"),
    **dict.fromkeys(("to", "cuda", "cpu"), "use jax.device_put(model, device), a new Model"),
    **dict.fromkeys(("half", "float", "bfloat16"), "give dtype= to from_pretrained"),
    "config": "it is model.source.module.config, of a transformers model",
    "device": "each of model.params has devices()",
    "replace": "use model.with_params(params) or model.with_state(state), a new Model",
}


def _method(model: Model, name: str):
    """``model.name``, one of these methods."""
    if name not in _METHODS:
        hint = f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise AttributeError(f"{type(model).__name__!r} object has no attribute {name!r}{hint}")
    home, _, inside = _METHODS[name].partition(".")
    function = __getattr__(home)
    return functools.partial(getattr(function, inside) if inside else function, model)


def _loop(model: Model, args, kwargs, shapes, options):
    """The decoding loop that ``model.save(folder, ..., generate=options)`` saves, too."""
    return importlib.import_module("tojax.hf.generation.loop_program").loop_of(
        model, args, kwargs, shapes, options
    )


# tojax.tensorflow.convert(...) and the like
_PARTS = (
    "errors",
    "export",
    "flax",
    "hf",
    "parallel",
    "stablehlo",
    "tensorflow",
    "torch",
    "train",
    "transforms",
)

# What is looked for at the top, and lies in a part.
_ELSEWHERE = {
    **{x: f"train.{x}" for x in ("fit", "lora", "make_step", "merge", "TrainState", "Batches")},
    **{x: f"train.{x}" for x in ("load_adapter", "save_adapter", "freeze")},
    **{x: f"transforms.{x}" for x in ("quantize", "roll", "unroll")},
    **{x: f"parallel.{x}" for x in ("shard", "estimate", "place", "initialize")},
    **{x: f"flax.{x}" for x in ("to_nnx", "to_linen", "load_into", "source")},
    **{x: f"export.{x}" for x in ("to_savedmodel", "to_onnx")},
    "pipeline": "hf.pipeline",
    "save": "Model.save",
}


def __getattr__(name: str):
    if name in _PARTS:
        return importlib.import_module(f"tojax.{name}")
    if name not in _HOME:
        raise AttributeError(_unknown(name))
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def _unknown(name: str) -> str:
    """The message for a name that is not here: near ones, and where such a name is."""
    import difflib

    places = {x: x for x in (*__all__, *_PARTS)} | _ELSEWHERE
    near = [places[x] for x in difflib.get_close_matches(name, places, 3, 0.7)]
    said = f"; did you mean {' or '.join(near)}?" if near else "."
    parts = ", ".join(_PARTS)
    return (
        f"module 'tojax' has no attribute {name!r}{said} It has {', '.join(__all__)}, "
        f"and the parts {parts}"
    )


def __dir__():
    return sorted({*(x for x in globals() if x.startswith("__")), *__all__, *_PARTS})
