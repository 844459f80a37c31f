"""A source some of whose params are frozen, and to some of which low-rank matrices are added."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from tojax.calls.wrapped import Arrays, Wrapped
from tojax.transforms.packed import Packed, opened


@dataclass(frozen=True)
class Adapter:
    """What is added to the matrix ``name``: ``scale * B @ A``, with ``dora`` the rows of the sum
    brought to trained lengths; the columns where ``axis`` is 0: one length for each output.
    """

    name: str
    scale: float
    dora: bool = False
    axis: int = 1

    @property
    def place(self) -> str:
        """The module that the matrix is the weight of."""
        return self.name.removesuffix(".weight")

    def part(self, kind: str) -> str:
        """The name of a param: of ``lora_A``, ``lora_B``, or ``lora_magnitude_vector``."""
        return f"{self.place}.{kind}"

    def __call__(self, weight: jax.Array, params: Arrays) -> jax.Array:
        """The matrix that takes the place of ``weight``, in its dtype."""
        a, b = params[self.part("lora_A")], params[self.part("lora_B")]
        out = weight.astype(a.dtype) + self.scale * (b @ a)
        if self.dora:
            # as in the paper (arXiv:2402.09353, 4.3): the length is no way for gradients
            length = jax.lax.stop_gradient(self.lengths(out))
            given = params[self.part("lora_magnitude_vector")]
            # a row of zeros has no direction: of no length is it more than zeros
            factor = given / jnp.where(length > 0, length, 1)
            out = jnp.expand_dims(factor, self.axis) * out
        return out.astype(weight.dtype)

    def lengths(self, matrix: jax.Array) -> jax.Array:
        """The length of each row, or column, also where squares are beyond the floats."""
        most = jnp.abs(matrix).max(self.axis, keepdims=True, initial=0)
        most = jnp.where(most > 0, most, 1)
        return jnp.linalg.norm(matrix / most, axis=self.axis) * most.squeeze(self.axis)


@dataclass(frozen=True, eq=False)
class Adapted(Wrapped):
    """Calls ``base``, whose params are named ``names``: those that this source's params hold, the
    others from its state, which holds some of them packed.
    """

    names: tuple[str, ...]
    adapters: tuple[Adapter, ...]
    packed: tuple[Packed, ...] = ()

    def opened(self, params: Arrays, state: Arrays) -> tuple[dict, dict]:
        """(params, state) of the base: adapters added to their matrices."""
        arrays, state = opened(self.packed, state)
        held = {**state, **arrays, **params}
        full = {k: held[k] for k in self.names}
        for adapter in self.adapters:
            full[adapter.name] = adapter(full[adapter.name], params)
        return full, {k: v for k, v in state.items() if k not in full}
