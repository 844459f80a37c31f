"""Ready-made loss functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from anyjax.errors import WrongValue

if TYPE_CHECKING:
    from anyjax.model import Model
    from anyjax.typing import ArrayLike, PyTree


def causal_lm(
    model: Model, batch: Mapping[str, ArrayLike] | ArrayLike
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the mean loss of the next tokens, which a causal language model of transformers
    computes itself. Where logits are large, head, loss and gradients come in blocks of positions.

    Args:
      model: what ``make_step`` gives to a loss function.
      batch: a dict of the model's arguments, or token ids alone. ``labels`` are the tokens unless
        given, -100, which does not count, where ``attention_mask``, [rows, length], is 0.

    Returns:
      The loss, and {"tokens": the number of tokens that it is the mean of}.

    Raises:
      WrongValue: the output has no loss.

    Example:
      >>> model = anyjax.from_pretrained("examples/tiny-llama")
      >>> loss, aux = anyjax.train.losses.causal_lm(model, jax.numpy.ones((2, 12), int))
      >>> int(aux["tokens"])
      22
    """
    batch = batch if isinstance(batch, Mapping) else {"input_ids": batch}
    mask, labels = batch.get("attention_mask"), batch.get("labels")
    if labels is None:
        ids = batch["input_ids"]
        labels = ids if mask is None else jnp.where(jnp.asarray(mask) != 0, jnp.asarray(ids), -100)
    tokens = (jnp.asarray(labels)[..., 1:] != -100).sum()
    return model_loss(model, {**batch, "labels": labels}), {"tokens": tokens}


def model_loss(model: Model, batch: Mapping[str, PyTree]) -> jax.Array:
    """Returns the loss that the model itself computes from ``labels``, as in transformers.

    Args:
      model: what ``make_step`` gives to a loss function.
      batch: a dict of the model's arguments, ``labels`` among them.

    Raises:
      WrongValue: the output has no loss.

    Example:
      >>> import optax
      >>> step = anyjax.train.make_step(anyjax.train.model_loss, optax.adamw(1e-4))
    """
    out: Any = model(**batch)
    loss = out.get("loss") if isinstance(out, dict) else getattr(out, "loss", None)
    if loss is None:
        raise WrongValue(
            f"the model's output, a {type(out).__name__}, has no loss",
            where=f"the batch has {', '.join(batch)}",
            why="models of transformers compute one where they are given labels",
            do="put labels into the batch, or write loss_fn(model, batch)",
        )
    return loss


def loss_of(loss: Callable[..., jax.Array]) -> Callable[[Model, Any], jax.Array]:
    """Makes a ``loss_fn`` of batches (inputs, targets) from a loss module, or a function.

    Args:
      loss: a Model (``anyjax.from_torch(torch.nn.CrossEntropyLoss())``), or any function of the
        model's output and the targets.

    Example:
      >>> import numpy as np, optax, torch
      >>> model, loss = (anyjax.from_torch(x) for x in (torch.nn.Linear(3, 2), torch.nn.MSELoss()))
      >>> step = anyjax.train.make_step(anyjax.train.loss_of(loss), optax.sgd(0.1))
      >>> state = anyjax.train.TrainState.create(model, optax.sgd(0.1))
      >>> batch = np.ones((4, 3), np.float32), np.zeros((4, 2), np.float32)
      >>> int(step(state, batch)[0].step)
      1
    """

    def loss_fn(model, batch):
        inputs, targets = batch
        return loss(model(inputs), targets)

    return loss_fn
