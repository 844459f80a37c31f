"""Training: a state that is a pytree, a step that is a pure function, and ``fit``.

Optimizers are optax's, checkpoints Orbax's, data comes from any iterable, and each works with any
Model.
"""

from __future__ import annotations

from anyjax.errors import imports_of

with imports_of("anyjax.train"):
    import optax  # noqa: F401

from anyjax.train import losses
from anyjax.train.adapters._lora import freeze, lora, merge
from anyjax.train.adapters.peft_files import load_adapter, save_adapter
from anyjax.train.data._bucket import bucket
from anyjax.train.data.batches import Batches, Shuffle, numpy_collate, prefetch
from anyjax.train.data.packing import pack, segment_mask
from anyjax.train.losses import loss_of, model_loss
from anyjax.train.run._evaluate import evaluate
from anyjax.train.run._fit import fit
from anyjax.train.run.checkpoint import restore
from anyjax.train.run.logs import tensorboard
from anyjax.train.step.train_state import TrainState
from anyjax.train.step.training_step import make_step

__all__ = [
    "Batches",
    "Shuffle",
    "TrainState",
    "bucket",
    "evaluate",
    "fit",
    "freeze",
    "load_adapter",
    "lora",
    "loss_of",
    "losses",
    "make_step",
    "merge",
    "model_loss",
    "numpy_collate",
    "pack",
    "prefetch",
    "restore",
    "save_adapter",
    "segment_mask",
    "tensorboard",
]
