"""Fine-tuning of some params: low-rank adapters (LoRA, DoRA) and frozen params."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp

from anyjax.errors import WrongArguments, WrongValue
from anyjax.model import Model
from anyjax.takes_model import takes_model
from anyjax.train.adapters.adapted import Adapted, Adapter
from anyjax.train.adapters.layout import is_turned
from anyjax.transforms import quantize as quantized
from anyjax.transforms.packed import Packed, Quantized
from anyjax.typing import PyTree


@takes_model
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
    """Makes low-rank adapters of some matrices the params of a Model; all else becomes state.

    Until it is trained, the result computes what ``model`` does. Each matrix W of shape (m, n)
    becomes ``W + alpha / rank * B @ A`` with A of shape (rank, n) and B of shape (m, rank), both
    float32.
    Source: LoRA, arXiv:2106.09685; DoRA, arXiv:2402.09353; QLoRA, arXiv:2305.14314.

    Args:
      model: any Model; one that is adapted already is merged first. Of a quantized one
        (``anyjax.transforms.quantize``) the matrices stay quantized, adapted or not.
      rank: the inner size of the adapters.
      targets: a regular expression, searched for in the names of ``model.params``: of matrices.
      alpha: the scale times rank; rank by default, so that the scale is 1.
      dora: also trains the lengths of the rows, ``lora_magnitude_vector`` of shape (m,); of the
        columns, (n,), in torch's layers that keep W as (in, out): ``Embedding`` and ``Conv1D``.
        A row of zeros stays zeros.
      train: a regular expression of further params that are trained whole, such as a new head.
      quantize: "int8", "int4" or "nf4": W is stored so, and dequantized inside of the step. The
        adapters also learn to correct the rounding of W, which itself stays as it is.
      block: of ``quantize``: how many numbers share a scale.
      rng: a key or a seed for A; B begins with zeros.

    Returns:
      A Model with the params ``PLACE.lora_A`` and ``PLACE.lora_B`` for each adapted
      ``PLACE.weight``. ``merge`` adds them to the matrices, ``to_torch()`` writes merged weights.

    Raises:
      WrongValue: the targets match no matrix, or train matches nothing; rank is no size; there is
        no such quantization, or it does not divide the rows.

    Example:
      >>> import numpy as np, torch
      >>> net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
      >>> model = anyjax.from_torch(net)
      >>> small = anyjax.train.lora(model, rank=2, targets="0.weight")
      >>> {name: x.shape for name, x in small.params.items()}
      {'0.lora_A': (2, 8), '0.lora_B': (8, 2)}
      >>> x = np.ones((1, 8), np.float32)
      >>> bool((small(x) == model(x)).all())
      True
    """
    if rank < 1:
        raise WrongValue(f"rank={rank}", why="it is a size", do="give 1 or more, such as 8")
    model = merge(model) if isinstance(model.source, Adapted) else model
    weights = base_weights(model)
    adapted_names = [k for k in _matching(weights, targets, "targets") if weights[k].ndim == 2]
    if not adapted_names:
        raise WrongValue(
            f"targets={targets!r} matches no matrix",
            why="an adapter is the product of two matrices: what it matches has other shapes",
            do="see model.params for names and shapes",
        )
    trained = _matching(model.params, train, "train") if train else []
    trained = [k for k in trained if k not in adapted_names]
    if quantize is not None:
        names = "|".join(f"^{re.escape(k)}$" for k in adapted_names)
        model = quantized(model, quantize, targets=names, block=block)
    scale = (rank if alpha is None else alpha) / rank
    axis = lambda name: 0 if is_turned(model.source, name.removesuffix(".weight")) else 1
    adapters = tuple(Adapter(name, scale, dora, axis(name)) for name in adapted_names)
    key = jax.random.key(rng) if isinstance(rng, int) else rng
    params = {k: model.params[k] for k in trained}
    for adapter, subkey in zip(adapters, jax.random.split(key, len(adapters))):
        rows, columns = weights[adapter.name].shape
        bound = columns**-0.5
        a = jax.random.uniform(subkey, (rank, columns), jnp.float32, -bound, bound)
        params |= {adapter.param_name("lora_A"): a}
        params |= {adapter.param_name("lora_B"): jnp.zeros((rows, rank), jnp.float32)}
        if dora:
            weight = _dequantized(model, adapter.name).astype(jnp.float32)
            params |= {adapter.param_name("lora_magnitude_vector"): adapter.lengths(weight)}
    return _adapt(model, params, adapters, trained)


@takes_model
def freeze(model: Model, names: str) -> Model:
    """Moves some params of a Model to its state, which no optimizer updates.

    Args:
      model: any Model.
      names: a regular expression, searched for in the names of ``model.params``.

    Raises:
      WrongValue: it matches none.

    Example:
      >>> import torch
      >>> net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
      >>> model = anyjax.from_torch(net)
      >>> sorted(anyjax.train.freeze(model, r"^0").params)
      ['1.bias', '1.weight']
    """
    frozen = set(_matching(model.params, names, "names"))
    trained = [k for k in model.params if k not in frozen]
    if isinstance(model.source, Adapted):
        params = {k: model.params[k] for k in trained}
        state = {**model.state, **{k: model.params[k] for k in frozen}}
        if of_adapters := sorted(frozen - {*model.source.names}):
            raise WrongArguments(
                f"freeze of adapters: {', '.join(of_adapters[:3])}",
                why="an adapter that is not trained is a part of its matrix",
                do="anyjax.train.merge(model) first",
            )
        return Model(params, state, model.source)
    return _adapt(model, {k: model.params[k] for k in trained}, (), trained)


@takes_model
def merge(model: Model) -> Model:
    """Adds adapters to their matrices and unfreezes all params: undoes ``lora`` and ``freeze``.

    Quantized matrices are dequantized, and the adapters are added to the rounded numbers, with
    which they were trained: the result computes what the adapted model does, in the dtype of the
    original.

    Args:
      model: that ``lora`` or ``freeze`` returned; any other comes back as it is.

    Example:
      >>> import torch
      >>> model = anyjax.from_torch(torch.nn.Linear(8, 2))
      >>> sorted(anyjax.train.merge(anyjax.train.lora(model, 2, "weight")).params)
      ['bias', 'weight']
    """
    if not isinstance(model.source, Adapted):
        return model
    return Model(*model.source.opened(model.params, model.state), model.source.base)


def _adapt(
    model: Model,
    params: dict[str, jax.Array],
    adapters: tuple[Adapter, ...],
    trained: Iterable[str],
) -> Model:
    """Returns the adapted Model; params of ``model`` that are not ``trained`` become state."""
    frozen = {k: v for k, v in model.params.items() if k not in {*trained}}
    packed = _packed(model)
    base = model.source.base if isinstance(model.source, Quantized) else model.source
    source = Adapted(base, (*base_weights(model),), adapters, packed)
    return Model(params, {**model.state, **frozen}, source)


def base_weights(model: Model) -> dict[str, jax.Array | Packed]:
    """Returns the params of a model that is not adapted; a ``Packed`` for each quantized one."""
    return {**model.params, **{packed.name: packed for packed in _packed(model)}}


def _packed(model: Model) -> tuple[Packed, ...]:
    return model.source.packed if isinstance(model.source, Quantized) else ()


def _dequantized(model: Model, name: str) -> jax.Array:
    by_name = {packed.name: packed for packed in _packed(model)}
    return by_name[name](model.state) if name in by_name else model.params[name]


def _matching(params: Mapping[str, PyTree], pattern: str, argument: str) -> list[str]:
    names = [k for k in params if re.search(pattern, k)]
    if not names:
        examples = ", ".join([*params][:4])
        raise WrongValue(
            f"{argument}={pattern!r} matches none of the model's params",
            why=f"they are called {examples}, ...",
            do="give a regular expression that is found in their names",
        )
    return names
