"""Fine-tuning a part of the params: low-rank adapters (LoRA, DoRA) and frozen params."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from tojax.errors import WrongArguments, WrongValue
from tojax.model import Model
from tojax.train.adapters.adapted import Adapted, Adapter
from tojax.train.adapters.layout import is_turned
from tojax.transforms import quantize as quantized
from tojax.transforms.packed import Packed, Quantized


def lora(
    model: Model,
    rank: int,
    targets: str,
    *,
    alpha: float | None = None,
    dora: bool = False,
    train: str | None = None,
    quantize: str | None = None,
    block: int | None = None,
    rng: jax.Array | int = 0,
) -> Model:
    """A Model whose params are low-rank adapters of some matrices, and whose state holds all else.

    It gives what ``model`` gives until it is trained. Each matrix W of shape (m, n) becomes
    ``W + alpha / rank * B @ A`` with A of shape (rank, n) and B of shape (m, rank), both float32.
    Source: LoRA, arXiv:2106.09685; DoRA, arXiv:2402.09353; QLoRA, arXiv:2305.14314.

    Args:
      model: any Model; one that is adapted already is merged first. Of a quantized one
        (``tojax.transforms.quantize``) the matrices stay quantized, adapted or not.
      rank: the inner size of the adapters.
      targets: a regular expression, searched for in the names of ``model.params``: of matrices.
      alpha: the scale times rank; rank by default, so that the scale is 1.
      dora: also trains the lengths of the rows, ``lora_magnitude_vector`` of shape (m,); of the
        columns, (n,), in torch's layers that keep W as (in, out): ``Embedding`` and ``Conv1D``.
        A row of zeros stays zeros.
      train: a regular expression of further params that are trained whole, such as a new head.
      quantize: "int8", "int4" or "nf4": W is held so, and opened inside of the step. The adapters
        learn what W rounded lacks, and nothing changes the rounded numbers.
      block: of ``quantize``: how many numbers share a scale.
      rng: a key or a seed for A; B begins with zeros.

    Returns:
      A Model with the params ``PLACE.lora_A`` and ``PLACE.lora_B``, where ``PLACE.weight`` was
      adapted. ``merge`` makes a plain one of it, ``to_torch()`` writes the merged weights.

    Raises:
      WrongValue: the targets match no matrix, or train matches nothing; rank is no size; there is
        no such quantization, or it does not divide the rows.

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
    known = held(model)
    chosen = [k for k in _found(known, targets, "targets") if known[k].ndim == 2]
    if not chosen:
        raise WrongValue(
            f"targets={targets!r} matches no matrix",
            why="an adapter is the product of two matrices: what it matches has other shapes",
            do="see model.params for names and shapes",
        )
    whole = [k for k in _found(model.params, train, "train") if k not in chosen] if train else []
    if quantize is not None:
        names = "|".join(f"^{re.escape(k)}$" for k in chosen)
        model = quantized(model, quantize, targets=names, block=block)
    scale = (rank if alpha is None else alpha) / rank
    axis = lambda name: 0 if is_turned(model.source, name.removesuffix(".weight")) else 1
    adapters = tuple(Adapter(name, scale, dora, axis(name)) for name in chosen)
    key = jax.random.key(rng) if isinstance(rng, int) else rng
    params = {k: model.params[k] for k in whole}
    for adapter, own in zip(adapters, jax.random.split(key, len(adapters))):
        rows, columns = known[adapter.name].shape
        bound = columns**-0.5
        first = jax.random.uniform(own, (rank, columns), jnp.float32, -bound, bound)
        params |= {adapter.part("lora_A"): first}
        params |= {adapter.part("lora_B"): jnp.zeros((rows, rank), jnp.float32)}
        if dora:
            weight = _opened(model, adapter.name).astype(jnp.float32)
            params |= {adapter.part("lora_magnitude_vector"): adapter.lengths(weight)}
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
    frozen = set(_found(model.params, names, "names"))
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

    Of quantized matrices it is the rounded ones to which they are added, those that the adapters
    were trained with: the result computes what the adapted model does, in the dtype of the
    original, and is not the original with the adapters. Nothing is quantized in it any more.

    Example:
      >>> import torch
      >>> model = tojax.from_torch(torch.nn.Linear(8, 2))
      >>> sorted(tojax.train.merge(tojax.train.lora(model, 2, "weight")).params)
      ['bias', 'weight']
    """
    if not isinstance(model.source, Adapted):
        return model
    return Model(*model.source.opened(model.params, model.state), model.source.base)


def adapted(
    model: Model, params: dict[str, jax.Array], adapters: tuple[Adapter, ...], own: Iterable[str]
) -> Model:
    """The Model of these params; of the model's own only ``own`` are among them."""
    frozen = {k: v for k, v in model.params.items() if k not in {*own}}
    packed = _packed(model)
    base = model.source.base if isinstance(model.source, Quantized) else model.source
    source = Adapted(base, (*held(model),), adapters, packed)
    return Model(params, {**model.state, **frozen}, source)


def held(model: Model) -> dict[str, Any]:
    """The params of a model that is not adapted, quantized ones by what is known of them."""
    return {**model.params, **{each.name: each for each in _packed(model)}}


def _packed(model: Model) -> tuple[Packed, ...]:
    return model.source.packed if isinstance(model.source, Quantized) else ()


def _opened(model: Model, name: str) -> jax.Array:
    found = {each.name: each for each in _packed(model)}
    return found[name](model.state) if name in found else model.params[name]


def _found(params: Mapping[str, Any], pattern: str, what: str) -> list[str]:
    found = [k for k in params if re.search(pattern, k)]
    if not found:
        some = ", ".join([*params][:4])
        raise WrongValue(
            f"{what}={pattern!r} matches none of the model's params",
            why=f"they are called {some}, ...",
            do="give a regular expression that is found in their names",
        )
    return found
