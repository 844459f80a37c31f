"""Fine-tuning a part of the params: low-rank adapters (LoRA, DoRA) and frozen params."""

from __future__ import annotations

import re
from collections.abc import Iterable

import jax
import jax.numpy as jnp

from tojax.errors import WrongArguments, WrongValue
from tojax.model import Model
from tojax.train.adapted import Adapted, Adapter


def lora(
    model: Model,
    rank: int,
    targets: str,
    *,
    alpha: float | None = None,
    dora: bool = False,
    train: str | None = None,
    rng: jax.Array | int = 0,
) -> Model:
    """A Model whose params are low-rank adapters of some matrices, and whose state holds all else.

    It gives what ``model`` gives until it is trained. Each matrix W of shape (m, n) becomes
    ``W + alpha / rank * B @ A`` with A of shape (rank, n) and B of shape (m, rank), both float32.
    Source: LoRA, arXiv:2106.09685; DoRA, arXiv:2402.09353.

    Args:
      model: any Model; one that is adapted already is merged first.
      rank: the inner size of the adapters.
      targets: a regular expression, searched for in the names of ``model.params``: of matrices.
      alpha: the scale times rank; rank by default, so that the scale is 1.
      dora: also trains the lengths of the rows, ``lora_magnitude_vector`` of shape (m,).
      train: a regular expression of further params that are trained whole, such as a new head.
      rng: a key or a seed for A; B begins with zeros.

    Returns:
      A Model with the params ``PLACE.lora_A`` and ``PLACE.lora_B``, where ``PLACE.weight`` was
      adapted. ``merge`` makes a plain one of it, ``to_torch()`` writes the merged weights.

    Raises:
      WrongValue: the targets match no matrix, or train matches nothing; rank is no size.

    Example:
      >>> import numpy as np, torch
      >>> net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
      >>> model = tojax.from_torch(net)
      >>> small = tojax.train.lora(model, rank=2, targets="0.weight")
      >>> {name: x.shape for name, x in small.params.items()}
      {'0.lora_A': (2, 8), '0.lora_B': (8, 2)}
      >>> x = np.ones((1, 8), np.float32)
      >>> bool((small(x) == model(x)).all())
      True
    """
    if rank < 1:
        raise WrongValue(f"rank={rank}", why="it is a size", do="give 1 or more, such as 8")
    model = merge(model) if isinstance(model.source, Adapted) else model
    chosen = [k for k in _found(model, targets, "targets") if model.params[k].ndim == 2]
    if not chosen:
        raise WrongValue(
            f"targets={targets!r} matches no matrix",
            why="an adapter is the product of two matrices: what it matches has other shapes",
            do="see model.params for names and shapes",
        )
    whole = [k for k in _found(model, train, "train") if k not in chosen] if train else []
    scale = (rank if alpha is None else alpha) / rank
    adapters = tuple(Adapter(name, scale, dora) for name in chosen)
    key = jax.random.key(rng) if isinstance(rng, int) else rng
    params = {k: model.params[k] for k in whole}
    for adapter, own in zip(adapters, jax.random.split(key, len(adapters))):
        weight = model.params[adapter.name]
        rows, columns = weight.shape
        bound = columns**-0.5
        first = jax.random.uniform(own, (rank, columns), jnp.float32, -bound, bound)
        params |= {adapter.part("lora_A"): first}
        params |= {adapter.part("lora_B"): jnp.zeros((rows, rank), jnp.float32)}
        if dora:
            lengths = jnp.linalg.norm(weight.astype(jnp.float32), axis=1)
            params |= {adapter.part("lora_magnitude_vector"): lengths}
    return adapted(model, params, adapters, whole)


def freeze(model: Model, names: str) -> Model:
    """A Model in which some params are state, which no optimizer updates.

    Args:
      model: any Model.
      names: a regular expression, searched for in the names of ``model.params``.

    Raises:
      WrongValue: it matches none.

    Example:
      >>> import torch
      >>> net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
      >>> model = tojax.from_torch(net)
      >>> sorted(tojax.train.freeze(model, r"^0").params)
      ['1.bias', '1.weight']
    """
    frozen = set(_found(model, names, "names"))
    own = [k for k in model.params if k not in frozen]
    if isinstance(model.source, Adapted):
        params = {k: model.params[k] for k in own}
        state = {**model.state, **{k: model.params[k] for k in frozen}}
        if stuck := sorted(frozen - {*model.source.names}):
            raise WrongArguments(
                f"freeze of adapters: {', '.join(stuck[:3])}",
                why="an adapter that is not trained is a part of its matrix",
                do="tojax.train.merge(model) first",
            )
        return Model(params, state, model.source)
    return adapted(model, {k: model.params[k] for k in own}, (), own)


def merge(model: Model) -> Model:
    """The plain Model of one that ``lora`` or ``freeze`` made, adapters added to their matrices.

    Example:
      >>> import torch
      >>> model = tojax.from_torch(torch.nn.Linear(8, 2))
      >>> sorted(tojax.train.merge(tojax.train.lora(model, 2, "weight")).params)
      ['bias', 'weight']
    """
    if not isinstance(model.source, Adapted):
        return model
    return Model(*model.source.merged(model.params, model.state), model.source.base)


def adapted(
    model: Model, params: dict[str, jax.Array], adapters: tuple[Adapter, ...], own: Iterable[str]
) -> Model:
    """The Model of these params; of the model's own only ``own`` are among them."""
    frozen = {k: v for k, v in model.params.items() if k not in {*own}}
    source = Adapted(model.source, (*model.params,), adapters)
    return Model(params, {**model.state, **frozen}, source)


def _found(model: Model, pattern: str, what: str) -> list[str]:
    found = [k for k in model.params if re.search(pattern, k)]
    if not found:
        some = ", ".join([*model.params][:4])
        raise WrongValue(
            f"{what}={pattern!r} matches none of the model's params",
            why=f"they are called {some}, ...",
            do="give a regular expression that is found in their names",
        )
    return found
