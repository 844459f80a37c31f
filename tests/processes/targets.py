"""Figures of small programs as the compilers of TPUs and GPUs see them, as JSON: what
test_targets.py holds. They do not vary from run to run.

PYTHONPATH=. .compat/compilers/bin/python -m tests.processes.targets > tests/expect/targets.json

By program and slice: million cycles (TPUs), megabytes that kernels read and write, megabytes of
temporaries, bytes of collectives; weights are in bfloat16. `make test` makes the environment.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from importlib import metadata

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
import transformers

import anyjax
from anyjax.parallel._compile_for import Compilation

LLAMA = {"hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "head_dim": 128}
LLAMA |= {"num_key_value_heads": 4, "intermediate_size": 1024, "vocab_size": 4096}
MIXTURE = {**LLAMA, "num_hidden_layers": 1, "num_local_experts": 4}
PICTURE = (2, 3, 64, 64)
T5 = {"d_model": 256, "d_kv": 64, "d_ff": 512, "num_layers": 1, "num_heads": 4, "vocab_size": 4096}
# class, config, inputs
MODELS = {
    "llama": ("LlamaForCausalLM", LLAMA, {"input_ids": (4, 512)}),
    "llama, padded": (
        "LlamaForCausalLM", LLAMA, {"input_ids": (4, 512), "attention_mask": (4, 512)},
    ),
    "gpt2": ("GPT2LMHeadModel", {"n_layer": 2, "vocab_size": 4096}, {"input_ids": (4, 512)}),
    "mixtral": ("MixtralForCausalLM", MIXTURE, {"input_ids": (2, 256)}),
    "t5": (
        "T5ForConditionalGeneration", {**T5, "decoder_start_token_id": 0},
        {"input_ids": (2, 256), "decoder_input_ids": (2, 256)},
    ),
    "resnet": (
        "ResNetForImageClassification", {"depths": [1, 1, 1, 1]}, {"pixel_values": PICTURE},
    ),
    "vit": (
        "ViTForImageClassification", {"num_hidden_layers": 2, "image_size": 64},
        {"pixel_values": PICTURE},
    ),
}  # fmt: skip
CASES = [(name, "forward", "h100-1") for name in MODELS]
CASES += [(name, "train", "h100-1") for name in ("llama", "mixtral")]
CASES += [("llama", what, chips) for what in ("forward", "train") for chips in ("h100-4", "v6e-4")]
# libtpu takes ten times as long, most of it for kernels of attention.
CASES += [(name, "forward", "v6e-1") for name in ("mixtral", "t5", "resnet", "vit")]
PACKAGES = ("jax", "libtpu", "torch", "transformers", "optax")


def narrow(tree):
    """Arrays of floats as bfloat16, by their shapes."""
    kind = lambda x: jnp.bfloat16 if jnp.issubdtype(x.dtype, jnp.floating) else x.dtype
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, kind(x)), tree)


def compiled(name: str, what: str, chips: str) -> Compilation:
    kind, config, shapes = MODELS[name]
    torch.manual_seed(0)
    cls = getattr(transformers, kind)
    model = anyjax.from_torch(cls(cls.config_class(**config)).eval())
    dtypes = lambda k: jnp.bfloat16 if k == "pixel_values" else np.int32
    batch = {k: jax.ShapeDtypeStruct(v, dtypes(k)) for k, v in shapes.items()}
    if what == "forward":
        options = {} if "pixel_values" in batch else {"use_cache": False}
        model = model.with_params(narrow(model.params))
        return anyjax.parallel.compile_for(model, chips, "tp", **batch, **options)
    tx = optax.adamw(1e-4)

    def loss(model, batch):
        logits = model(**batch, use_cache=False).logits[:, :-1].astype(jnp.float32)
        labels = batch["input_ids"][:, 1:]
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    state = jax.eval_shape(lambda m: anyjax.train.TrainState.create(m, tx), model.train())
    state = narrow(state)
    step = anyjax.train.make_step(loss, tx)
    return anyjax.parallel.compile_for(step, chips, "fsdp", batch, state=state)


def figures(told: Compilation) -> dict[str, float]:
    moved = sum(x.bytes for x in told.collectives.values())
    return {
        "Mcycles": round(told.cycles / 1e6, 3),
        "MB moved": round(told.traffic / 1e6, 2),
        "MB of temporaries": round(told.memory["temporaries"] / 1e6, 2),
        "MB of collectives": round(moved / 1e6, 2),
        "peak by estimate": round(told.estimate.traced_peak / told.memory["peak"], 3),
    }


def counted() -> Iterator[tuple[str, dict[str, float]]]:
    for name, what, chips in CASES:
        print(name, what, chips, file=sys.stderr, flush=True)
        yield f"{name}, {what}, {chips}", figures(compiled(name, what, chips))


def versions() -> dict[str, str]:
    return {package: metadata.version(package) for package in PACKAGES}


if __name__ == "__main__":
    print(json.dumps({"versions": versions(), **dict(counted())}, indent=1))
