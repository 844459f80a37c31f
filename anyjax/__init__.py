"""Any PyTorch, Hugging Face, TensorFlow, ONNX or StableHLO model as a JAX function plus params.

The names below are loaded when they are first used: ``import anyjax`` imports no framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from anyjax import errors
from anyjax.calls import methods

__version__ = "0.1.0"

if TYPE_CHECKING:
    from anyjax.calls.compilation_cache import use_compilation_cache
    from anyjax.calls.host_memory import reuse_memory
    from anyjax.explorer import explore
    from anyjax.frontends import convert
    from anyjax.hf._save_pretrained import save_pretrained
    from anyjax.hf.generation._generate import generate
    from anyjax.hf.generation.job.public_cache import Cache
    from anyjax.hf.loading.load import from_pretrained
    from anyjax.model import Model, load
    from anyjax.onnx import from_onnx
    from anyjax.parity import verify
    from anyjax.stablehlo import from_stablehlo
    from anyjax.tensorflow import from_tensorflow
    from anyjax.torch import from_torch, lowers
    from anyjax.torch.torchax import extract_jax

_HOME = {
    "Cache": "anyjax.hf.generation.job.public_cache",
    "Model": "anyjax.model",
    "convert": "anyjax.frontends",
    "explore": "anyjax.explorer",
    "extract_jax": "anyjax.torch.torchax",
    "from_onnx": "anyjax.onnx",
    "from_pretrained": "anyjax.hf.loading.load",
    "from_stablehlo": "anyjax.stablehlo",
    "from_tensorflow": "anyjax.tensorflow",
    "from_torch": "anyjax.torch",
    "generate": "anyjax.hf.generation._generate",
    "load": "anyjax.model",
    "lowers": "anyjax.torch",
    "reuse_memory": "anyjax.calls.host_memory",
    "save_pretrained": "anyjax.hf._save_pretrained",
    "use_compilation_cache": "anyjax.calls.compilation_cache",
    "verify": "anyjax.parity",
}
__all__ = [
    "Cache",
    "Model",
    "convert",
    "explore",
    "extract_jax",
    "from_onnx",
    "from_pretrained",
    "from_stablehlo",
    "from_tensorflow",
    "from_torch",
    "generate",
    "load",
    "lowers",
    "reuse_memory",
    "save_pretrained",
    "use_compilation_cache",
    "verify",
]

methods.FURTHER.update(
    {
        "cache": "anyjax.hf.generation.job.public_cache:Cache.of",
        "generate": "anyjax.hf.generation._generate:generate",
        "save_pretrained": "anyjax.hf._save_pretrained:save_pretrained",
        "_decoding_loop": "anyjax.hf.generation.job.saved_loop_program:loop_of",
    }
)

# anyjax.tensorflow.convert(...) and the like
_PARTS = (
    "errors",
    "explorer",
    "export",
    "flax",
    "hf",
    "onnx",
    "parallel",
    "parity",
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
        return importlib.import_module(f"anyjax.{name}")
    if name not in _HOME:
        raise AttributeError(_unknown(name))
    with errors.imports_of(f"anyjax.{name}"):
        value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def _unknown(name: str) -> str:
    """Returns the message for a name that is not here: near ones, and where such a name is."""
    import difflib

    places = {x: x for x in (*__all__, *_PARTS)} | _ELSEWHERE
    near = [places[x] for x in difflib.get_close_matches(name, places, 3, 0.7)]
    suggestion = f"; did you mean {' or '.join(near)}?" if near else "."
    listed = ", ".join(_PARTS)
    return (
        f"module 'anyjax' has no attribute {name!r}{suggestion} It has {', '.join(__all__)}, "
        f"and the parts {listed}"
    )


def __dir__():
    return sorted({*(x for x in globals() if x.startswith("__")), *__all__, *_PARTS})
