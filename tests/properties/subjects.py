"""Models that properties are held against: families of transformers, Keras models, a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers as t

import anyjax
from anyjax.model import Model
from anyjax.torch.core.interop import to_torch
from tests.models import tiny

KEY = jax.random.key(0)  # some models draw in evaluation mode, too, and do not use it


@dataclass(frozen=True)
class Subject:
    """A model with arrays to call it with.

    Attributes:
      module: what it is converted from.
      convert: returns it, as a new model.
      arrays: (args, kwargs), traced.
      static: further keyword arguments.
      rows: each row of the batch has outputs of its own.
      size: numbers that are summed in a row, over all layers.
    """

    name: str
    module: Any
    convert: Callable[[], Model]
    arrays: tuple[tuple, dict[str, Any]]
    static: Mapping[str, Any] = field(default_factory=dict)
    rows: bool = True
    size: int = 64

    @cached_property
    def model(self) -> Model:
        return self.convert()

    def call(self, model: Model | None = None, arrays: Any = None) -> Any:
        """Returns the output of ``model(...)``, of this model or another."""
        args, kwargs = self.arrays if arrays is None else arrays
        return (model or self.model)(*args, rng=KEY, **kwargs, **self.static)

    def apply(self, params: Any, arrays: Any, model: Model | None = None, **options: Any) -> Any:
        """Returns the output of ``model.apply``."""
        args, kwargs = arrays
        options |= kwargs | {**self.static}
        return (model or self.model).apply(params, *args, rng=KEY, **options)

    def function(self, model: Model | None = None) -> Callable[[Any, Any], Any]:
        """Returns ``apply`` as a function that JAX has no program for yet."""
        return lambda params, arrays: self.apply(params, arrays, model)

    @cached_property
    def out(self) -> Any:
        return self.call()

    def torch_out(self) -> Any:
        """Returns the output of the torch module."""
        tensors = {k: to_torch(x) for k, x in self.arrays[1].items()}
        with torch.no_grad():
            return self.module(**tensors, **self.static)


def llava() -> tuple[torch.nn.Module, dict[str, Any]]:
    """Returns a vision-language model whose text has a place for each part of an image."""
    vision = t.CLIPVisionConfig(**tiny.VISION)
    text = t.LlamaConfig(**tiny.DECODER)
    torch.manual_seed(0)
    module = t.LlavaForConditionalGeneration(
        t.LlavaConfig(vision_config=vision, text_config=text, image_token_id=95)
    )
    ids = torch.cat([torch.full((2, 16), 95), tiny.ids().clamp(max=94)], 1)
    return module.eval(), tiny.image() | {"input_ids": ids, "use_cache": False}


def of_torch(name: str) -> Subject:
    """Returns a family of transformers, ``-bfloat16`` with weights of that dtype."""
    family, _, dtype = name.partition("-bfloat")
    module, inputs = llava() if family == "llava" else tiny.build(family)
    if hasattr(module.config, "apply_spec_augment"):  # these draw with numpy in training
        module.config.update({"apply_spec_augment": False, "layerdrop": 0.0})
    if dtype:
        module.to(torch.bfloat16)
        halved = lambda x: x.to(torch.bfloat16) if torch.is_floating_point(x) else x
        inputs = {k: halved(x) if isinstance(x, torch.Tensor) else x for k, x in inputs.items()}
    if family == "rwkv":
        module(**inputs)  # it rescales its weights when it is first called
    convert = lambda: anyjax.from_torch(module)
    as_array = convert().source.as_array
    tensors = {k: x for k, x in inputs.items() if isinstance(x, torch.Tensor)}
    arrays = {k: np.asarray(as_array(x)) for k, x in tensors.items()}
    static = {k: x for k, x in inputs.items() if k not in tensors}
    size = sum(x.numel() // x.shape[0] for x in module.parameters() if x.ndim > 1)
    return Subject(name, module, convert, ((), arrays), static, family not in MIXED, size)


def keras_images() -> Any:
    import keras

    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.1),
            layers.Dense(4),
        ]
    )


def keras_sequence() -> Any:
    import keras

    x = ids = keras.Input((6,), dtype="int32")
    x = keras.layers.Embedding(16, 8)(x)
    x = keras.layers.LSTM(8, return_sequences=True)(x)
    x = keras.layers.MultiHeadAttention(2, 4)(x, x)
    return keras.Model(ids, keras.layers.Dense(4)(x))


def of_keras(build: Callable[[], Any], x: np.ndarray) -> Subject:
    """Returns a Keras model."""
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(0)
    module = build()
    convert = lambda: anyjax.from_tensorflow(module, x)
    return Subject(build.__name__, module, convert, ((x,), {}), size=128)


def of_stablehlo() -> Subject:
    """Returns an exported program, whose sizes are fixed."""
    weights = np.random.default_rng(0).standard_normal((3, 16)).astype("f")
    function = jax.jit(lambda x: jax.nn.softmax(jnp.tanh(x @ weights) @ weights.T))
    x = np.ones((2, 3), np.float32)
    module = jax.export.export(function)(x)
    convert = lambda: anyjax.from_stablehlo(module.serialize())
    return Subject("stablehlo", module, convert, ((x,), {}), rows=False)


MIXED = "clip", "siglip", "chinese_clip", "llava"  # outputs of all rows together
IMAGES = np.random.default_rng(0).standard_normal((2, 8, 8, 3)).astype("f")
OTHERS = {
    "keras_images": lambda: of_keras(keras_images, IMAGES),
    "keras_sequence": lambda: of_keras(keras_sequence, np.arange(12).reshape(2, 6) % 16),
    "stablehlo": of_stablehlo,
}
# In an order in which every fourth one is of another kind.
TORCH = """llama gpt2 mistral phi3  bert roberta distilbert electra  whisper bart t5 wav2vec2
resnet convnext vit dinov2  mixtral qwen3 gemma gemma2  mamba rwkv opt phi
detr segformer swin deberta-v2  clip siglip chinese_clip llava
llama-bfloat16 vit-bfloat16 t5-bfloat16 resnet-bfloat16""".split()  # noqa: SIM905
ALL = [*TORCH, *OTHERS]
UNPICKLED = {*OTHERS, "wav2vec2"}  # which is parametrized


def build(name: str) -> Subject:
    return OTHERS[name]() if name in OTHERS else of_torch(name)


def floats(tree: Any) -> list[jax.Array]:
    """Returns the leaves that have gradients."""
    return [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]


def total(tree: Any) -> jax.Array:
    """Returns one number of all outputs."""
    return sum(jnp.sum(x.astype(jnp.float32) ** 2) for x in floats(tree))
