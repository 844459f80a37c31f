"""A loss and its gradients: mixed precision, loss scaling, accumulation over microbatches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from anyjax.errors import WrongValue
from anyjax.train.step import remat
from anyjax.train.step.forward import StatefulModel
from anyjax.train.step.train_state import TrainState

if TYPE_CHECKING:
    from jaxtyping import PyTree

    from anyjax.model import Model


class LossResult(NamedTuple):
    """The loss, what the loss function returned beside it, and the model's new state."""

    loss: jax.Array
    aux: Any
    state: dict[str, jax.Array]


@dataclass(eq=False)
class Gradients:
    """A function ``gradients(state, batch)`` that returns (LossResult, gradients of the params).

    Attributes:
      state_constants: entries of the model's state that are constants of the program.
      written: names of the entries that the loss wrote when it was last traced.
    """

    loss_fn: Callable[[Any, Any], Any]
    accumulate: int = 1
    dtype: Any = None
    remat: bool | str = False
    state_constants: dict[str, Any] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)

    def __call__(self, state: TrainState, batch: PyTree) -> tuple[LossResult, dict[str, jax.Array]]:
        key = jax.random.fold_in(state.rng, state.step)
        scale = 1.0 if state.loss_scale is None else state.loss_scale.scale
        if self.accumulate == 1:
            out, grads = self._value_and_grad(state, state.state, batch, key, scale)
        else:
            out, grads = self._accumulated(state, batch, key, scale)
        factor = 1 / (scale * self.accumulate)
        # JAX's gradient by a complex number is the conjugate of the direction of steepest ascent
        return out, jax.tree.map(lambda g: (jnp.conj(g) * factor).astype(g.dtype), grads)

    def loss(self, model: Model, batch: PyTree, key: jax.Array) -> LossResult:
        """Evaluates the loss without gradients."""
        model = replace(model, state={**model.state, **self.state_constants})
        stateful = StatefulModel(model, key, self.dtype)
        initial = stateful.state
        with remat.rematerialized(model.source, self.remat):
            value, aux = _pair(self.loss_fn(stateful, batch))
        self.written = {k for k, x in stateful.state.items() if x is not initial.get(k)}
        return LossResult(_scalar(value), aux, stateful.state)

    def _value_and_grad(self, state, model_state, batch, key, scale):
        def scaled_loss(params):
            out = self.loss(replace(state.model, params=params, state=model_state), batch, key)
            return out.loss * scale, out

        (_, out), grads = jax.value_and_grad(scaled_loss, has_aux=True)(state.params)
        return out, grads

    def _accumulated(self, state, batch, key, scale):
        """Scans over microbatches; BatchNorm's statistics go from one to the next."""

        def body(carry, numbered):
            total, model_state = carry
            number, microbatch = numbered
            key_of_number = jax.random.fold_in(key, number)
            out, grads = self._value_and_grad(state, model_state, microbatch, key_of_number, scale)
            return (jax.tree.map(jnp.add, total, grads), out.state), (out.loss, out.aux)

        microbatches = jax.tree.map(lambda x: _strided_split(x, self.accumulate), batch)
        start = jax.tree.map(jnp.zeros_like, state.params), state.state
        numbers = jnp.arange(self.accumulate)
        (grads, model_state), losses = jax.lax.scan(body, start, (numbers, microbatches))
        loss, aux = jax.tree.map(lambda x: x.mean(0), losses)
        return LossResult(loss, aux, model_state), grads


def _strided_split(array: jax.Array, count: int) -> jax.Array:
    """Reshapes [rows, ...] to [count, rows / count, ...]; entry i has the rows i, i + count, ..."""
    rows, *dims = array.shape
    return jnp.moveaxis(jnp.reshape(array, (rows // count, count, *dims)), 1, 0)


def _pair(out: PyTree) -> tuple[Any, Any]:
    """Returns (loss, aux) from the value of a loss function."""
    return out if type(out) is tuple and len(out) == 2 else (out, {})


def _scalar(value: Any) -> jax.Array:
    """Returns the loss, at least as wide as float32.

    Raises:
      WrongValue: it is no real scalar.
    """
    if (
        not hasattr(value, "shape")
        or value.shape != ()
        or not jnp.issubdtype(value.dtype, jnp.floating)
    ):
        shown = f"{value.dtype}{list(value.shape)}" if hasattr(value, "shape") else repr(value)
        raise WrongValue(
            f"the loss is {shown}, no real number",
            why="a gradient is that of a scalar",
            do="return loss.mean(), or the pair (loss, aux), from loss_fn",
        )
    return value.astype(jnp.promote_types(value.dtype, jnp.float32))
