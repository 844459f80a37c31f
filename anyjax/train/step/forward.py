"""The model that a loss function gets: each call has its own randomness, and the next call sees
the state that the last one wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from anyjax import trees
from anyjax.model import Model
from anyjax.typing import PyTree


class StatefulModel:
    """A Model that threads randomness and state through its calls, for use in a pure function.

    Attributes:
      params: in the compute dtype, after the calls so far, for forward may write to weights.
      state: after the calls so far.
      written: those params that a call wrote, in their own dtype.
    """

    def __init__(self, model: Model, rng: jax.Array | None = None, dtype: object = None):
        self.model, self.rng, self.dtype, self.calls = model, rng, dtype, 0
        self.params, self.state = self._narrow(model.params), model.state
        self.written: dict[str, jax.Array] = {}

    def __call__(self, *args, rng: jax.Array | None = None, **kwargs) -> Any:
        """Returns the model's output; in mixed precision inputs are cast to the compute dtype, and
        outputs to float32.
        """
        if rng is None and self.rng is not None:
            rng = jax.random.fold_in(self.rng, self.calls)
        self.calls += 1
        args, kwargs = self._narrow(trees.register((args, kwargs)))
        out, state = self.model.apply(
            self.params, *args, state=self.state, rng=rng, mutable=True, **kwargs
        )
        self.state = {k: x for k, x in state.items() if k not in self.params}
        written = {k: x for k, x in state.items() if k in self.params}
        self.params = {**self.params, **written}
        self.written |= {k: x.astype(self.model.params[k].dtype) for k, x in written.items()}
        return self._wide(out)

    def apply(self, params: Mapping[str, jax.Array], *args, **kwargs) -> Any:
        """Runs ``Model.apply`` with the current state; writes to the state are not kept."""
        return self.model.apply(params, *args, **{"state": self.state, **kwargs})

    def _narrow(self, tree: PyTree) -> Any:
        return tree if self.dtype is None else cast(tree, jnp.float32, self.dtype)

    def _wide(self, tree: PyTree) -> Any:
        return tree if self.dtype is None else cast(tree, self.dtype, jnp.float32)


def cast(tree: Any, old: Any, new: Any) -> Any:
    """Casts the arrays of dtype ``old`` to ``new``; other leaves stay as they are.

    Example:
      >>> import jax.numpy as jnp
      >>> [str(x.dtype) for x in cast([jnp.ones(2), jnp.arange(2)], jnp.float32, jnp.bfloat16)]
      ['bfloat16', 'int32']
    """
    fits = lambda x: trees.is_array(x) and x.dtype == old
    return jax.tree.map(lambda x: jnp.asarray(x, new) if fits(x) else x, tree)
