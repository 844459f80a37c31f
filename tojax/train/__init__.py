"""Training: a state that is a pytree, a step that is a pure function, and ``fit``.

Optimizers are optax's, checkpoints Orbax's, data comes from any iterable, and each works with any
Model.
"""

from __future__ import annotations

from tojax.train._bucket import bucket
from tojax.train._evaluate import evaluate
from tojax.train._fit import fit
from tojax.train._lora import freeze, lora, merge
from tojax.train.checkpoint import restore
from tojax.train.data import Batches, Shuffle, numpy_collate, prefetch
from tojax.train.logs import tensorboard
from tojax.train.losses import loss_of, model_loss
from tojax.train.packing import pack, segment_mask
from tojax.train.peft_files import load_adapter, save_adapter
from tojax.train.state import TrainState
from tojax.train.step import make_step

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
