"""Any PyTorch, Hugging Face, TensorFlow, ONNX or StableHLO model as a JAX function plus params.

The names below are loaded when they are first used: ``import tojax`` imports no framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tojax import errors
from tojax.calls import methods

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tojax.calls.compilation_cache import use_compilation_cache
    from tojax.calls.host_memory import reuse_memory
    from tojax.explorer import explore
    from tojax.frontends import convert
    from tojax.hf._save_pretrained import save_pretrained
    from tojax.hf.generation._generate import generate
    from tojax.hf.generation.job.public_cache import Cache
    from tojax.hf.loading.load import from_pretrained
    from tojax.model import Model, load
    from tojax.onnx import from_onnx
    from tojax.parity import verify
    from tojax.stablehlo import from_stablehlo
    from tojax.tensorflow import from_tensorflow
    from tojax.torch import from_torch, lowers
    from tojax.torch.torchax import extract_jax

_HOME = {
    "Cache": "tojax.hf.generation.job.public_cache",
    "Model": "tojax.model",
    "convert": "tojax.frontends",
    "explore": "tojax.explorer",
    "extract_jax": "tojax.torch.torchax",
    "from_onnx": "tojax.onnx",
    "from_pretrained": "tojax.hf.loading.load",
    "from_stablehlo": "tojax.stablehlo",
    "from_tensorflow": "tojax.tensorflow",
    "from_torch": "tojax.torch",
    "generate": "tojax.hf.generation._generate",
    "load": "tojax.model",
    "lowers": "tojax.torch",
    "reuse_memory": "tojax.calls.host_memory",
    "save_pretrained": "tojax.hf._save_pretrained",
    "use_compilation_cache": "tojax.calls.compilation_cache",
    "verify": "tojax.parity",
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
        "cache": "tojax.hf.generation.job.public_cache:Cache.of",
        "generate": "tojax.hf.generation._generate:generate",
        "save_pretrained": "tojax.hf._save_pretrained:save_pretrained",
        "_decoding_loop": "tojax.hf.generation.job.saved_loop_program:loop_of",
    }
)

# tojax.tensorflow.convert(...) and the like
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
        return importlib.import_module(f"tojax.{name}")
    if name not in _HOME:
        raise AttributeError(_unknown(name))
    with errors.imports_of(f"tojax.{name}"):
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
        f"module 'tojax' has no attribute {name!r}{suggestion} It has {', '.join(__all__)}, "
        f"and the parts {listed}"
    )


def __dir__():
    return sorted({*(x for x in globals() if x.startswith("__")), *__all__, *_PARTS})
