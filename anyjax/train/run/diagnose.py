"""Where a NaN or infinite loss begins: the first operation that makes one, and its module."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anyjax import trees
from anyjax.errors import Diverged
from anyjax.train.run.nan_source import first_nonfinite
from anyjax.train.step.gradients import Gradients
from anyjax.train.step.train_state import TrainState
from anyjax.train.step.training_step import Step
from anyjax.typing import PyTree


def check_finite(
    step: Step, state: TrainState, batch: PyTree, number: int, metrics: dict[str, Any]
) -> None:
    """Raises Diverged for metrics that are not finite, unless a loss scale can still shrink."""
    if metrics["finite"] or metrics.get("loss_scale", 1) > 1:
        return
    loss = float(metrics["loss"])
    finite = f"a gradient is not finite, the loss is {loss:.4g}"
    raise Diverged(
        f"step {number}: " + (finite if np.isfinite(loss) else f"the loss is {loss}"),
        where=origin(step.gradients, state, batch),
        why="model and optimizer are as they were before this step; nothing was saved after it",
        do="look at this batch, lower the learning rate, give clip=, or compute in a wider dtype",
    )


def origin(gradients: Gradients, state: TrainState, batch: PyTree) -> str:
    """Describes the first NaN or infinity: in batch, params, state, the loss or its gradient.

    Example:
      >>> import jax.numpy as jnp, optax, torch
      >>> model = anyjax.from_torch(torch.nn.Linear(1, 1, bias=False))
      >>> state = anyjax.train.TrainState.create(model, optax.sgd(0.1))
      >>> loss = lambda model, x: jnp.log(model(x) * 0 - 1).mean()
      >>> origin(Gradients(loss), state, jnp.ones((2, 1)))
      'log makes NaN'
    """
    for name, tree in (("batch", batch), ("params", state.params), ("state", state.state)):
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            if _nonfinite_kind(leaf):
                return f"{name}{jax.tree_util.keystr(path)} holds {_nonfinite_kind(leaf)}"
    key = jax.random.fold_in(state.rng, state.step)
    loss = lambda state, batch: gradients.loss(state.model, batch, key).loss
    finding = first_nonfinite(loss, state, batch) or first_nonfinite(gradients, state, batch)
    return finding or "not found: with the state after this step all is finite"


def _nonfinite_kind(leaf: Any) -> str:
    """Returns "NaN" or "infinity" if the leaf holds one, else an empty string."""
    if not trees.is_array(leaf) or not jnp.issubdtype(leaf.dtype, jnp.inexact):
        return ""
    return "NaN" if jnp.isnan(leaf).any() else "infinity" if jnp.isinf(leaf).any() else ""
