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
from anyjax.typing import PyTree

if TYPE_CHECKING:
    from anyjax.model import Model


class LossResult(NamedTuple):
    """The loss, what the loss function returned beside it, the model's new state, and the params
    that forward itself wrote, as WGAN clips its weights.
    """

    loss: jax.Array
    aux: Any
    state: dict[str, jax.Array]
    params: dict[str, jax.Array]


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
            out, grads = self._value_and_grad(state, state.params, state.state, batch, key, scale)
        else:
            out, grads = self._accumulated(state, batch, key, scale)
        factor = 1 / (scale * self.accumulate)
        # JAX's gradient by a complex number is the conjugate of the direction of steepest ascent
        return out, jax.tree.map(lambda g: (jnp.conj(g) * factor).astype(g.dtype), grads)

    def loss(self, model: Model, batch: PyTree, key: jax.Array) -> LossResult:
        model = replace(model, state={**model.state, **self.state_constants})
        stateful = StatefulModel(model, key, self.dtype)
        initial = stateful.state
        with remat.rematerialized(model.source, self.remat):
            value, aux = _pair(self.loss_fn(stateful, batch))
        self.written = {k for k, x in stateful.state.items() if x is not initial.get(k)}
        return LossResult(_scalar(value), aux, stateful.state, stateful.written)

    def _value_and_grad(self, state, params, model_state, batch, key, scale):
        def scaled_loss(params):
            out = self.loss(replace(state.model, params=params, state=model_state), batch, key)
            return out.loss * scale, out

        (_, out), grads = jax.value_and_grad(scaled_loss, has_aux=True)(params)
        return out, grads

    def _accumulated(self, state, batch, key, scale, names: frozenset[str] = frozenset()):
        """Scans over microbatches; BatchNorm's statistics go from one to the next, and params of
        these names, which forward writes.
        """
        all_names = {*names}

        def body(carry, numbered):
            total, model_state, written = carry
            number, microbatch = numbered
            key_of_number, params = jax.random.fold_in(key, number), {**state.params, **written}
            out, grads = self._value_and_grad(
                state, params, model_state, microbatch, key_of_number, scale
            )
            all_names.update(out.params)
            written = {k: out.params.get(k, x) for k, x in written.items()}
            return (jax.tree.map(jnp.add, total, grads), out.state, written), (out.loss, out.aux)

        microbatches = jax.tree.map(lambda x: _strided_split(x, self.accumulate), batch)
        written = {k: state.params[k] for k in names}
        start = jax.tree.map(jnp.zeros_like, state.params), state.state, written
        numbers = jnp.arange(self.accumulate)
        (grads, model_state, written), losses = jax.lax.scan(body, start, (numbers, microbatches))
        if all_names != names:  # known once it was traced
            return self._accumulated(state, batch, key, scale, frozenset(all_names))
        loss, aux = jax.tree.map(lambda x: x.mean(0), losses)
        return LossResult(loss, aux, model_state, written), grads


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
