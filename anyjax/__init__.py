"""Any PyTorch, Hugging Face, TensorFlow, ONNX or StableHLO model as a JAX function plus params.

The names below are loaded when they are first used: ``import anyjax`` imports no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyjax import lazy
from anyjax.calls import methods

__version__ = "0.2.0"

if TYPE_CHECKING:
    from anyjax import diffusers as diffusers
    from anyjax import errors as errors
    from anyjax import explorer as explorer
    from anyjax import export as export
    from anyjax import flax as flax
    from anyjax import hf as hf
    from anyjax import onnx as onnx
    from anyjax import parallel as parallel
    from anyjax import parity as parity
    from anyjax import stablehlo as stablehlo
    from anyjax import tensorflow as tensorflow
    from anyjax import torch as torch
    from anyjax import torchax as torchax
    from anyjax import train as train
    from anyjax import transforms as transforms
    from anyjax import typing as typing
    from anyjax.calls.compilation_cache import use_compilation_cache as use_compilation_cache
    from anyjax.calls.counted_array import CountedArray as CountedArray
    from anyjax.calls.host_memory import reuse_memory as reuse_memory
    from anyjax.calls.layouts import static as static
    from anyjax.diffusers._from_diffusers import from_diffusers as from_diffusers
    from anyjax.explorer import explore as explore
    from anyjax.frontends import convert as convert
    from anyjax.frontends import load as load
    from anyjax.hf._save_pretrained import save_pretrained as save_pretrained
    from anyjax.hf.generation._generate import generate as generate
    from anyjax.hf.generation.job.public_cache import Cache as Cache
    from anyjax.hf.loading.load import from_pretrained as from_pretrained
    from anyjax.model import Model as Model
    from anyjax.onnx import from_onnx as from_onnx
    from anyjax.parity import verify as verify
    from anyjax.stablehlo import from_stablehlo as from_stablehlo
    from anyjax.tensorflow import from_tensorflow as from_tensorflow
    from anyjax.torch import from_torch as from_torch
    from anyjax.torch import lowers as lowers
    from anyjax.torch.torchax import extract_jax as extract_jax

_HOME = {
    "Cache": "anyjax.hf.generation.job.public_cache",
    "CountedArray": "anyjax.calls.counted_array",
    "Model": "anyjax.model",
    "convert": "anyjax.frontends",
    "explore": "anyjax.explorer",
    "extract_jax": "anyjax.torch.torchax",
    "from_diffusers": "anyjax.diffusers._from_diffusers",
    "from_onnx": "anyjax.onnx",
    "from_pretrained": "anyjax.hf.loading.load",
    "from_stablehlo": "anyjax.stablehlo",
    "from_tensorflow": "anyjax.tensorflow",
    "from_torch": "anyjax.torch",
    "generate": "anyjax.hf.generation._generate",
    "load": "anyjax.frontends",
    "lowers": "anyjax.torch",
    "reuse_memory": "anyjax.calls.host_memory",
    "save_pretrained": "anyjax.hf._save_pretrained",
    "static": "anyjax.calls.layouts",
    "use_compilation_cache": "anyjax.calls.compilation_cache",
    "verify": "anyjax.parity",
}
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
    "diffusers",
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
    "torchax",
    "train",
    "transforms",
    "typing",
)

# What is looked for at the top, and lies in a part.
_ELSEWHERE = {
    **{x: f"train.{x}" for x in ("fit", "lora", "make_step", "merge", "TrainState", "Batches")},
    **{x: f"train.{x}" for x in ("load_adapter", "save_adapter", "freeze")},
    **{x: f"transforms.{x}" for x in ("quantize", "roll", "unroll")},
    **{x: f"parallel.{x}" for x in ("shard", "estimate", "place", "initialize")},
    **{x: f"flax.{x}" for x in ("to_nnx", "to_linen", "load_into", "source")},
    **{x: f"export.{x}" for x in ("to_savedmodel", "to_onnx", "atoms", "load_atoms")},
    "pipeline": "hf.pipeline",
    "save": "Model.save",
}

lazy.facade(__name__, _HOME, _PARTS, _ELSEWHERE)
