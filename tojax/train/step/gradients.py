"""A loss and its gradients: in a narrow dtype, scaled, summed over parts of a batch, as asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tojax.errors import WrongValue
from tojax.train.step import remat
from tojax.train.step.forward import Running
from tojax.train.step.train_state import TrainState


class Out(NamedTuple):
    """What one evaluation of the loss gives besides gradients."""

    loss: jax.Array
    aux: Any
    state: dict[str, jax.Array]


@dataclass(eq=False)
class Gradients:
    """``gradients(state, batch)``: (Out, gradients of the params).

    ``known`` are entries of the model's state that are constants of the program, ``written`` the
    names of those that the loss wrote when it was last traced.
    """

    loss_fn: Callable[[Any, Any], Any]
    accumulate: int = 1
    dtype: Any = None
    remat: bool | str = False
    known: dict[str, Any] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)

    def __call__(self, state: TrainState, batch: Any) -> tuple[Out, dict[str, jax.Array]]:
        key = jax.random.fold_in(state.rng, state.step)
        scale = 1.0 if state.loss_scale is None else state.loss_scale.scale
        if self.accumulate == 1:
            out, grads = self._of(state, state.state, batch, key, scale)
        else:
            out, grads = self._summed(state, batch, key, scale)
        factor = 1 / (scale * self.accumulate)
        # JAX's gradient by a complex number is the conjugate of the direction of steepest ascent
        return out, jax.tree.map(lambda g: (jnp.conj(g) * factor).astype(g.dtype), grads)

    def loss(self, model: Any, batch: Any, key: jax.Array) -> Out:
        """The loss alone."""
        running = Running(replace(model, state={**model.state, **self.known}), key, self.dtype)
        before = running.state
        with remat.layers(model.source, self.remat):
            value, aux = _pair(self.loss_fn(running, batch))
        self.written = {k for k, x in running.state.items() if x is not before.get(k)}
        return Out(_scalar(value), aux, running.state)

    def _of(self, state, model_state, batch, key, scale):
        def scaled(params):
            out = self.loss(replace(state.model, params=params, state=model_state), batch, key)
            return out.loss * scale, out

        (_, out), grads = jax.value_and_grad(scaled, has_aux=True)(state.params)
        return out, grads

    def _summed(self, state, batch, key, scale):
        """One part after the other; BatchNorm's statistics go from part to part."""

        def body(carry, part):
            summed, model_state = carry
            number, rows = part
            out, grads = self._of(state, model_state, rows, jax.random.fold_in(key, number), scale)
            return (jax.tree.map(jnp.add, summed, grads), out.state), (out.loss, out.aux)

        parts = jax.tree.map(lambda x: _cut(x, self.accumulate), batch)
        start = jax.tree.map(jnp.zeros_like, state.params), state.state
        numbers = jnp.arange(self.accumulate)
        (grads, model_state), seen = jax.lax.scan(body, start, (numbers, parts))
        loss, aux = jax.tree.map(lambda x: x.mean(0), seen)
        return Out(loss, aux, model_state), grads


def _cut(array: Any, parts: int) -> jax.Array:
    """[rows, ...] to [parts, rows / parts, ...]; part i holds the rows i, i + parts, ..."""
    rows, *rest = array.shape
    return jnp.moveaxis(jnp.reshape(array, (rows // parts, parts, *rest)), 1, 0)


def _pair(out: Any) -> tuple[Any, Any]:
    """(loss, aux) of what a loss function returned."""
    return out if type(out) is tuple and len(out) == 2 else (out, {})


def _scalar(value: Any) -> jax.Array:
    """The loss, at least as wide as float32.

    Raises:
      WrongValue: it is none.
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
