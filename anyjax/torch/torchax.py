"""torchax's calling convention, for code that has it already."""

from __future__ import annotations

from collections.abc import Callable

import jax
import torch

from anyjax import trees
from anyjax.calls.concretization_help import advise
from anyjax.errors import DataDependent
from anyjax.torch.source import from_torch
from anyjax.typing import Output


def extract_jax(module: torch.nn.Module) -> tuple[dict[str, jax.Array], Callable[..., Output]]:
    """Returns the module as ``(weights, func)`` with ``func(weights, args_tuple, kwargs_dict)``.

    ``weights`` holds params and state alike, as torchax's does. What forward writes to the state is
    not returned; use ``from_torch(module).apply(..., mutable=True)`` for that.

    Args:
      module: a torch module, as for ``from_torch``.

    Returns:
      The weights by their names, and the pure function. It takes ``rng``, too, a key.

    Raises:
      MissingOps, MissingRng, DataDependent, WrongArguments: by the function, as by
        ``model.apply``.

    Example:
      >>> import torch, numpy as np
      >>> weights, func = extract_jax(torch.nn.Linear(3, 2))
      >>> func(weights, (np.ones((4, 3), np.float32),), {}).shape
      (4, 2)
    """
    model = from_torch(module)
    names = set(model.params)

    def func(weights, args=(), kwargs=None, rng=None):
        params = {k: v for k, v in weights.items() if k in names}
        state = {k: v for k, v in weights.items() if k not in names}
        kwargs = kwargs or {}
        try:
            return model.apply(params, *args, state=state, rng=rng, **kwargs)
        except DataDependent as error:
            argument_names = trees.names(args, kwargs, model.source.positional)
            leaves = dict(zip(argument_names, jax.tree.leaves((args, kwargs))))
            advise(error, leaves, "func(weights, (x,), {{{}}})", "{!r}: ...")
            raise

    return {**model.params, **model.state}, func
