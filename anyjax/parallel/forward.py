"""The forward pass of one call as a function of arrays alone, to trace or compile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anyjax import trees
from anyjax.calls import call
from anyjax.errors import WrongArguments
from anyjax.model import Model


@dataclass(frozen=True)
class Forward:
    """A call with its arrays left open: ``forward(params, state, arrays)`` returns output arrays.

    Example:
      >>> import torch
      >>> model = anyjax.from_torch(torch.nn.Linear(3, 2))
      >>> forward = Forward.of(model, (np.ones((4, 3), np.float32),))
      >>> [x.shape for x in forward(model.params, model.state, forward.arrays)]
      [(4, 2)]
    """

    model: Model
    leaves: list[Any]
    structure: Any

    @classmethod
    def of(
        cls,
        model: Model,
        args: tuple = (),
        kwargs: dict | None = None,
        rng: jax.Array | None = None,
    ) -> Forward:
        """Returns that of this call; without arguments, of the model's last call or of an example.

        Raises:
          WrongArguments: there is no call.
        """
        call = (args, kwargs or {}, rng) if args or kwargs else example_call(model)
        leaves, structure = jax.tree.flatten(call)
        return cls(model, [zeros_for_shape(model.source.as_array(x)) for x in leaves], structure)

    @property
    def arrays(self) -> list[Any]:
        return [x for x in self.leaves if trees.is_array(x)]

    @property
    def call(self) -> tuple:
        """(args, kwargs, rng) as a source takes them."""
        return jax.tree.unflatten(self.structure, self.leaves)

    def __call__(
        self, params: dict[str, jax.Array], state: dict[str, jax.Array], arrays: list[jax.Array]
    ) -> list[jax.Array]:
        values = iter(arrays)
        leaves = [next(values) if trees.is_array(x) else x for x in self.leaves]
        args, kwargs, rng = jax.tree.unflatten(self.structure, leaves)
        out, _ = call.apply(self.model.source, params, state, args, kwargs, rng)
        return [x for x in jax.tree.leaves(out) if trees.is_array(x)]


def zeros_for_shape(x: object) -> Any:
    """Returns zeros for a shape, of an array that a recorded call did not keep."""
    if not isinstance(x, jax.ShapeDtypeStruct):
        return x
    key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return jax.random.key(0) if key else np.zeros(x.shape, x.dtype)


def example_call(model: Model) -> tuple:
    """Returns (args, kwargs, rng) of the last call, or of an example of the source."""
    recorded = call.calls(model.source) or getattr(model.source, "examples", list)()
    if not recorded:
        raise WrongArguments(
            "there is no call to trace",
            where=model.source.name,
            why="which product feeds which, and which layers repeat, is read from a call's program",
            do='give an example, as shard(model, mesh, "tp", *args) or roll(model, *args) take it, '
            "or call model first",
        )
    return recorded[-1]
