"""Training: a state that is a pytree, a step that is a pure function, and ``fit``.

Optimizers are optax's, checkpoints Orbax's, data comes from any iterable, and each works with any
Model.
"""

from __future__ import annotations

from tojax.errors import imports_of

with imports_of("tojax.train"):
    import optax  # noqa: F401

from tojax.train.adapters._lora import freeze, lora, merge
from tojax.train.adapters.peft_files import load_adapter, save_adapter
from tojax.train.data._bucket import bucket
from tojax.train.data.batches import Batches, Shuffle, numpy_collate, prefetch
from tojax.train.data.packing import pack, segment_mask
from tojax.train.run._evaluate import evaluate
from tojax.train.run._fit import fit
from tojax.train.run.checkpoint import restore
from tojax.train.run.logs import tensorboard
from tojax.train.step.losses import loss_of, model_loss
from tojax.train.step.train_state import TrainState
from tojax.train.step.training_step import make_step

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
