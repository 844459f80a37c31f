"""Mistakes of users: both type checkers find those lines that end in "wrong", and no others."""

from __future__ import annotations

import numpy as np
import torch

import anyjax
from anyjax import train

X = np.ones((4, 3), np.float32)


def names() -> None:
    from anyjax import trian  # wrong

    print(trian, anyjax.train, anyjax.typing)
    anyjax.frmo_torch  # wrong
    anyjax.train.fti  # wrong
    anyjax.flax.to_nn  # wrong
    anyjax.hf.pipe  # wrong
    anyjax.torch.onjax  # wrong
    anyjax.parallel.shrad  # wrong
    anyjax.transforms.rol  # wrong


def models(model: anyjax.Model) -> None:
    model.generat(X)  # wrong
    model.forward(X)  # wrong
    model.apply()  # wrong
    model.apply(model.params, X, mutable="yes")  # wrong
    model.apply(model.params, X, mutable=True).sum()  # wrong
    model.with_params(3)  # wrong
    model.params = {}  # wrong
    model.cache("long")  # wrong
    model(X) + "one"  # wrong


def functions(model: anyjax.Model) -> None:
    anyjax.generate("x")  # wrong
    anyjax.generate(model, "x")  # wrong
    anyjax.from_torch(3)  # wrong
    anyjax.from_torch(torch.nn.ReLU(), precision="fast")  # wrong
    anyjax.from_pretrained("x", torch_dtype="bfloat16")  # wrong
    anyjax.transforms.quantize(model, 8)  # wrong
    anyjax.transforms.edit(model, {"0": 3})  # wrong
    anyjax.parallel.shard(model, "tp")  # wrong
    anyjax.export.to_onnx(model)  # wrong
    anyjax.flax.to_torch(model, model)  # wrong
    anyjax.lowers("mine::one")(3)  # wrong


def training(model: anyjax.Model) -> None:
    train.fit()  # wrong
    train.lora(model, "q_proj")  # wrong
    train.lora(model, "8", "q_proj")  # wrong
    train.make_step(lambda model, batch: "loss", None)  # wrong
    train.TrainState.create(model)  # wrong
