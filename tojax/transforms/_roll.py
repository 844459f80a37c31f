"""Repeated layers as one loop over stacked weights, and back."""

from __future__ import annotations

from typing import Any

import jax

from tojax import warn_once
from tojax.errors import NotRolled, WrongArguments
from tojax.model import Model
from tojax.parallel.forward import Forward
from tojax.transforms.rolling.report import Report
from tojax.transforms.rolling.rolled import Rolled, Traced, traced
from tojax.transforms.rolling.stacks import groups, stacked


def roll(model: Model, *args: Any, rng: Any = None, remat: bool = False, **kwargs: Any) -> Model:
    """The model with its repeated layers as one ``lax.scan`` over stacked weights.

    The program of a call is traced, and runs of equations that repeat are found in it: those that
    are provably the same function of their operands, with the same flow from round to round.
    Patterns of several layers (local and global attention, experts in every second layer) count,
    names of classes do not. Every kind of call is looked at on its own, so caches, dropout and
    hidden states that are asked for come out as without loops; what does not repeat in a call runs
    one by one. Compile time does not grow with depth.

    Args:
      model: any Model.
      *args, rng, **kwargs: an example call that decides what is stacked, where the model was not
        called yet and does not bring one along. Shapes and dtypes count.
      remat: what a layer computes is computed again for the gradient, not kept until then
        (``jax.checkpoint``).

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
      >>> model = tojax.from_torch(torch.nn.Sequential(*(block() for _ in range(6))))
      >>> x = np.ones((2, 8), np.float32)
      >>> rolled = tojax.transforms.roll(model, x)
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
            do="roll the original with other options, or tojax.transforms.unroll(model) first",
        )
    params, state = dict(model.params), dict(model.state)
    if not (args or kwargs) and not _may_repeat(params):
        return _as_it_is(model)  # whatever it is called with
    return rolled(model, params, state, program_of(model, args, kwargs, rng), remat)


def _may_repeat(params: dict) -> bool:
    """Whether two params have one shape and dtype, as two layers of one kind have."""
    kinds = [(jax.numpy.shape(x), str(x.dtype)) for x in params.values()]
    return len(set(kinds)) < len(kinds)


def _as_it_is(model: Model) -> Model:
    warn_once.warn(
        f"no layers of {model.source.name} repeat: the model stays as it is "
        "(tojax.transforms.explain tells why)",
        NotRolled,
    )
    return model


def rolled(model: Model, params: dict, state: dict, found: Traced, remat: bool = False) -> Model:
    """The model with these arrays, which are taken out of their dicts, by a program of a call."""
    chosen = groups(found, found.loops)
    if not chosen:
        return _as_it_is(model)
    return Model(
        stacked(params, chosen), stacked(state, chosen), Rolled(model.source, chosen, remat)
    )


def unroll(model: Model) -> Model:
    """The model with a param of its own for each layer again: the inverse of ``roll``.

    Raises:
      WrongArguments: the model is not rolled.

    Example:
      >>> import numpy as np, torch
      >>> model = tojax.from_torch(torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3))))
      >>> rolled = tojax.transforms.roll(model, np.ones((2, 8), np.float32))
      >>> sorted(unroll(rolled).params) == sorted(model.params)
      True
    """
    if not isinstance(model.source, Rolled):
        raise WrongArguments(
            "the model is not rolled",
            where=model.source.name,
            why="unroll is the inverse of tojax.transforms.roll",
            do="unroll before other transformations are put around the model",
        )
    return Model(*model.source.opened(model.params, model.state), model.source.base)


def explain(model: Model, *args: Any, rng: Any = None, **kwargs: Any) -> Report:
    """Which layers of a call run as loops, and what keeps others out; print it.

    Args:
      model: any Model, rolled or not.
      *args, rng, **kwargs: the call; by default the last one, or one that the source makes up.

    Raises:
      WrongArguments: there is no call to look at.

    Example:
      >>> import numpy as np, torch
      >>> layers = [torch.nn.Linear(8, 8) for _ in range(4)] + [torch.nn.Linear(8, 2)]
      >>> model = tojax.from_torch(torch.nn.Sequential(*layers))
      >>> print(explain(model, np.ones((2, 8), np.float32)))
      1 loop, 4 of 5 matrix products in loops
        4 rounds of ... equations: *.weight, *.bias
          ends because dot_general(f32[2,8], ...) is not dot_general(f32[8,8], ...) at 4.weight
        not in a loop: 4.weight
    """
    if isinstance(model.source, Rolled):
        model = unroll(model)
    return Report.of(program_of(model, args, kwargs, rng))


def program_of(model: Model, args: tuple = (), kwargs: Any = None, rng: Any = None) -> Traced:
    """The program of a call; without arguments of the last one, or of one that the source makes."""
    forward = Forward.of(model, args, kwargs, rng)
    return traced(model.source, model.params, model.state, forward.call)
