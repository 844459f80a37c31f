"""Results that forward cut off from all that may have a gradient: torch raises in ``backward()``
there, and JAX would give zeros without a word.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

import jax
import torch
from jax.interpreters import ad

from anyjax import warn_once
from anyjax.errors import LostGradient
from anyjax.torch.core.lifting import inner
from anyjax.torch.core.tensor import differentiable, needs_gradient
from anyjax.typing import PyTree

# Of the tracers of derivatives, and not of programs.
DIFFERENTIATES = ad.JVPTracer.__module__
MODULE = operator.attrgetter("__module__")


def check(params: Mapping[str, jax.Array], inputs: tuple, out: PyTree) -> None:
    """Warns where JAX differentiates by these arrays, and no result has a gradient."""
    kinds = {*map(type, params.values()), *map(type, inputs[0])}
    if DIFFERENTIATES not in map(MODULE, kinds):
        return
    results = [inner(x) for x in jax.tree.leaves(out) if isinstance(x, torch.Tensor)]
    floats = [x for x in results if differentiable(x.dtype)]
    if floats and not any(map(needs_gradient, floats)):
        warn_once.warn(
            "the gradient of all results is zero: forward computes them in torch.no_grad, or "
            "detaches them. Leave that out for training; torch would raise an error in backward()",
            LostGradient,
        )
