"""A source some of whose params are frozen, and to some of which low-rank matrices are added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp

from tojax.calling import Source
from tojax.program import Kept

Arrays = Mapping[str, jax.Array]


@dataclass(frozen=True)
class Adapter:
    """What is added to the matrix ``name``: ``scale * B @ A``, with ``dora`` the rows of the sum
    brought to trained lengths.
    """

    name: str
    scale: float
    dora: bool = False

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
            length = jax.lax.stop_gradient(jnp.linalg.norm(out, axis=1, keepdims=True))
            out = params[self.part("lora_magnitude_vector")][:, None] * out / length
        return out.astype(weight.dtype)


@dataclass(frozen=True, eq=False)
class Adapted:
    """Calls ``base``, whose params are named ``names``: those that this source's params hold, the
    others from its state.
    """

    base: Source
    names: tuple[str, ...]
    adapters: tuple[Adapter, ...]
    kept: Kept = field(default_factory=Kept, repr=False)

    def __eq__(self, other: Any) -> bool:
        form = lambda x: (x.base, x.names, x.adapters)
        return isinstance(other, Adapted) and form(self) == form(other)

    def __hash__(self) -> int:
        return hash((self.base, self.adapters))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.base, name)  # name, signature, module, framework, ...: the base's own

    def merged(self, params: Arrays, state: Arrays) -> tuple[dict, dict]:
        """(params, state) of the base."""
        full = {k: params[k] if k in params else state[k] for k in self.names}
        for adapter in self.adapters:
            full[adapter.name] = adapter(full[adapter.name], params)
        return full, {k: v for k, v in state.items() if k not in full}

    def __call__(self, params, state, args, kwargs, rng=None):
        """What the base gives with the merged params."""
        return self.base(*self.merged(params, state), args, kwargs, rng)

    def in_mode(self, training: bool) -> Adapted:
        """The same in training or evaluation mode."""
        return replace(self, base=self.base.in_mode(training))

    def write_back(self, params, state) -> Any:
        """The source's own module, with the merged params."""
        return self.base.write_back(*self.merged(params, state))
