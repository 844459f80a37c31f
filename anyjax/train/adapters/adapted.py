"""A source with frozen params and low-rank adapters."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from anyjax.calls.wrapped import Arrays, Wrapped
from anyjax.transforms.packed import Packed, opened


@dataclass(frozen=True)
class Adapter:
    """A low-rank update of the matrix ``name``: adds ``scale * B @ A``. With ``dora`` the rows of
    the sum are scaled to trained lengths; where ``axis`` is 0, the columns: one for each output.
    """

    name: str
    scale: float
    dora: bool = False
    axis: int = 1

    @property
    def place(self) -> str:
        """The path of the module whose weight the matrix is."""
        return self.name.removesuffix(".weight")

    def param_name(self, kind: str) -> str:
        """Returns the name of ``lora_A``, ``lora_B``, or ``lora_magnitude_vector``."""
        return f"{self.place}.{kind}"

    def __call__(self, weight: jax.Array, params: Arrays) -> jax.Array:
        """Returns the adapted matrix, in the dtype of ``weight``."""
        a, b = params[self.param_name("lora_A")], params[self.param_name("lora_B")]
        out = weight.astype(a.dtype) + self.scale * (b @ a)
        if self.dora:
            # as in the paper (arXiv:2402.09353, 4.3): no gradient flows through the length
            length = jax.lax.stop_gradient(self.lengths(out))
            magnitude = params[self.param_name("lora_magnitude_vector")]
            # a row of zeros has no direction and stays zeros
            factor = magnitude / jnp.where(length > 0, length, 1)
            out = jnp.expand_dims(factor, self.axis) * out
        return out.astype(weight.dtype)

    def lengths(self, matrix: jax.Array) -> jax.Array:
        """Returns the length of each row, or column; squares of large numbers don't overflow."""
        largest = jnp.abs(matrix).max(self.axis, keepdims=True, initial=0)
        largest = jnp.where(largest > 0, largest, 1)
        return jnp.linalg.norm(matrix / largest, axis=self.axis) * largest.squeeze(self.axis)


@dataclass(frozen=True, eq=False)
class Adapted(Wrapped):
    """A source that calls ``base`` with adapted weights.

    ``names`` are the params of the base: trained ones are params here too, frozen ones are state,
    some of them packed.
    """

    names: tuple[str, ...]
    adapters: tuple[Adapter, ...]
    packed: tuple[Packed, ...] = ()

    def opened(self, params: Arrays, state: Arrays) -> tuple[dict, dict]:
        """Returns (params, state) of the base, with adapters added to their matrices."""
        unpacked, state = opened(self.packed, state)
        arrays = {**state, **unpacked, **params}
        full = {k: arrays[k] for k in self.names}
        for adapter in self.adapters:
            full[adapter.name] = adapter(full[adapter.name], params)
        return full, {k: v for k, v in state.items() if k not in full}
