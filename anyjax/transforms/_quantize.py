"""``quantize``: weights in 8 or 4 bits."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp

from anyjax.errors import WrongArguments, WrongValue
from anyjax.model import Model
from anyjax.takes_model import takes_model
from anyjax.transforms.numbers import SCHEMES
from anyjax.transforms.packed import Packed, Quantized


@takes_model
def quantize(model: Model, scheme: str, *, targets: str = "", block: int | None = None) -> Model:
    """Stores a Model's matrices and kernels in 8 or 4 bits a number. The model computes in their
    former dtype: weights only, activations stay as they are.

    Each row of the first axis is cut into blocks with a float32 scale each. The quantized arrays
    are ``model.state``: integers have no gradients. They are dequantized inside of the call: memory
    is small between calls, and that of the full arrays while a program runs.

    Args:
      model: any Model.
      scheme: "int8" or "int4", equally spaced; "fp8", floats of 8 bits (e4m3fn, arXiv:2209.05433);
        or "nf4", the quantiles of a normal distribution (QLoRA, arXiv:2305.14314).
      targets: a regular expression, searched for in the names of ``model.params``; by default all
        floating-point ones of two or more axes.
      block: how many numbers share a scale; a whole row for int8 and fp8, 64 for the others.

    Returns:
      A Model with the state ``NAME.int8`` (fp8; int4, nf4: two numbers a byte) and ``NAME.scale``
      in the place of the param ``NAME``. ``to_torch()`` writes the dequantized weights.

    Raises:
      WrongValue: there is no such scheme, the targets match nothing that can be quantized, or a
        block does not divide the rows. Nothing is allocated then.
      WrongArguments: the model is quantized or rolled already.
      MissingDependency: qwix is not installed.

    Example:
      >>> import numpy as np, torch
      >>> model = anyjax.from_torch(torch.nn.Linear(64, 8))
      >>> small = anyjax.transforms.quantize(model, "int4")
      >>> {name: (str(x.dtype), x.shape) for name, x in small.state.items()}
      {'weight.int4': ('uint8', (32, 8)), 'weight.scale': ('float32', (1, 8))}
      >>> x = np.ones((1, 64), np.float32)
      >>> bool((abs(small(x) - model(x)) < 0.2).all())
      True
    """
    if scheme not in SCHEMES:
        raise WrongValue(
            f"quantization to {scheme!r}",
            why="there is no such scheme",
            do=f"give one of {', '.join(SCHEMES)}",
        )
    if isinstance(model.source, Quantized):
        raise WrongArguments(
            "the model is quantized already",
            why="a second rounding would start from the first one's values",
            do="quantize the original with all targets at once",
        )
    if "groups" in vars(model.source):
        raise WrongArguments(
            "the model is rolled",
            why="the rows that share a scale are those of one layer's matrix",
            do="quantize first: anyjax.transforms.roll(anyjax.transforms.quantize(model, ...))",
        )
    is_matrix = lambda x: x.ndim > 1 and jnp.issubdtype(x.dtype, jnp.floating) and x.size
    chosen = {k: x for k, x in model.params.items() if re.search(targets, k) and is_matrix(x)}
    if not chosen:
        raise WrongValue(
            f"targets={targets!r} matches nothing that can be quantized",
            why="that is floating-point params of two or more axes",
            do="see model.params for names and shapes",
        )
    packed = tuple(Packed.of(k, x, scheme, block) for k, x in chosen.items())
    state = dict(model.state)
    for form in packed:
        state |= jax.jit(form.pack)(chosen[form.name])
    params = {k: x for k, x in model.params.items() if k not in chosen}
    return Model(params, state, Quantized(model.source, packed))
