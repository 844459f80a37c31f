"""Repeated layers as one loop over stacked weights, and back."""

from __future__ import annotations

from typing import Any

import jax

from anyjax import warn_once
from anyjax.errors import NotRolled, WrongArguments
from anyjax.model import Model
from anyjax.parallel.forward import Forward
from anyjax.takes_model import takes_model
from anyjax.transforms.rolling.report import Report
from anyjax.transforms.rolling.rolled import Rolled, TracedCall, trace_call
from anyjax.transforms.rolling.stacks import groups, stacked


@takes_model
def roll(
    model: Model, *args: Any, rng: jax.Array | None = None, remat: bool = False, **kwargs: Any
) -> Model:
    """Runs the repeated layers of a model as one ``lax.scan`` over stacked weights.

    The program of a call is traced, and repeated runs of equations are found in it: equations that
    are provably the same function of their operands, with the same flow from round to round.
    Patterns of several layers (local and global attention, experts in every second layer) count,
    names of classes do not. Every kind of call is analysed on its own, so that caches, dropout and
    requested hidden states come out as without loops; layers that do not repeat in a call run one
    by one. Compile time does not grow with depth.

    Args:
      model: any Model.
      *args: an example call that decides what is stacked. Needed if the model was
        not called yet and its source makes no example. Only shapes and dtypes count.
      rng: the key of that call, where it draws random numbers.
      **kwargs: its arguments by name.
      remat: recompute the results inside of layers for the gradient (``jax.checkpoint``).

    Returns:
      A Model with the param ``layers.*.weight`` ``[layers, ...]`` in the place of
      ``layers.0.weight``, ``layers.1.weight``, ...; of every second layer it is
      ``layers.2n.weight`` and ``layers.2n+1.weight``. ``to_torch()`` and ``save_pretrained`` write
      the rows under their own names.

    Raises:
      WrongArguments: there is no example, or the model is rolled already.

    Warns:
      NotRolled: nothing repeats; the model is returned as it is.

    Example:
      >>> import numpy as np, torch
      >>> block = lambda: torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
      >>> model = anyjax.from_torch(torch.nn.Sequential(*(block() for _ in range(6))))
      >>> x = np.ones((2, 8), np.float32)
      >>> rolled = anyjax.transforms.roll(model, x)
      >>> {name: array.shape for name, array in rolled.params.items()}
      {'*.0.weight': (6, 8, 8), '*.0.bias': (6, 8)}
      >>> bool(abs(rolled(x) - model(x)).max() < 1e-6)
      True
    """
    if isinstance(model.source, Rolled):
        raise WrongArguments(
            "the model is rolled already",
            where=model.source.name,
            why="its layers are stacked",
            do="roll the original with other options, or anyjax.transforms.unroll(model) first",
        )
    params, state = dict(model.params), dict(model.state)
    if not (args or kwargs) and not _may_repeat(params):
        return _not_rolled(model)  # for every call
    return rolled(model, params, state, program_of(model, args, kwargs, rng), remat)


def _may_repeat(params: dict) -> bool:
    """Returns True if two params have the same shape and dtype, as in repeated layers."""
    kinds = [(jax.numpy.shape(x), str(x.dtype)) for x in params.values()]
    return len(set(kinds)) < len(kinds)


def _not_rolled(model: Model) -> Model:
    warn_once.warn(
        f"no layers of {model.source.name} repeat: the model stays as it is "
        "(anyjax.transforms.explain tells why)",
        NotRolled,
    )
    return model


def rolled(model: Model, params: dict, state: dict, call: TracedCall, remat: bool = False) -> Model:
    """Returns the rolled model by the program of a call; ``params`` and ``state`` are emptied."""
    stacks = groups(call, call.loops)
    if not stacks:
        return _not_rolled(model)
    source = Rolled(model.source, stacks, remat)
    return Model(stacked(params, stacks), stacked(state, stacks), source)


@takes_model
def unroll(model: Model) -> Model:
    """Gives each layer its own params again: the inverse of ``roll``.

    Args:
      model: that ``roll`` returned, with whatever params it has by now.

    Raises:
      WrongArguments: the model is not rolled.

    Example:
      >>> import numpy as np, torch
      >>> model = anyjax.from_torch(torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3))))
      >>> rolled = anyjax.transforms.roll(model, np.ones((2, 8), np.float32))
      >>> sorted(unroll(rolled).params) == sorted(model.params)
      True
    """
    if not isinstance(model.source, Rolled):
        raise WrongArguments(
            "the model is not rolled",
            where=model.source.name,
            why="unroll is the inverse of anyjax.transforms.roll",
            do="unroll before other transformations are put around the model",
        )
    return Model(*model.source.opened(model.params, model.state), model.source.base)


@takes_model
def explain(model: Model, *args: Any, rng: jax.Array | None = None, **kwargs: Any) -> Report:
    """Reports which layers of a call run as loops, and why others do not; print it.

    Args:
      model: any Model, rolled or not.
      *args: the call; by default the last one, or one that the source makes up.
      rng: the key of that call, where it draws random numbers.
      **kwargs: its arguments by name.

    Raises:
      WrongArguments: there is no call to look at.

    Example:
      >>> import numpy as np, torch
      >>> layers = [torch.nn.Linear(8, 8) for _ in range(4)] + [torch.nn.Linear(8, 2)]
      >>> model = anyjax.from_torch(torch.nn.Sequential(*layers))
      >>> print(explain(model, np.ones((2, 8), np.float32)))
      1 loop, 4 of 5 matrix products in loops
        4 rounds of ... equations: *.weight, *.bias
          ends because dot_general(f32[2,8], ...) is not dot_general(f32[8,8], ...) at 4.weight
        not in a loop: 4.weight
    """
    if isinstance(model.source, Rolled):
        model = unroll(model)
    return Report.of_call(program_of(model, args, kwargs, rng))


def program_of(
    model: Model, args: tuple = (), kwargs: dict | None = None, rng: jax.Array | None = None
) -> TracedCall:
    """Traces a call; without arguments the last call, or an example of the source."""
    forward = Forward.of(model, args, kwargs, rng)
    return trace_call(model.source, model.params, model.state, forward.call)
