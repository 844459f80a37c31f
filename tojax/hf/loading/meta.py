"""A checkpoint's model without its weights: shapes on the meta device, operators from an abstract
trace.
"""

from __future__ import annotations

from collections import Counter

import jax
import numpy as np
import torch

from tojax.errors import MissingOps
from tojax.hf.loading import inputs
from tojax.hf.loading.checkpoint import Checkpoint
from tojax.hf.loading.classes import config_of, model_class, refusing
from tojax.hf.loading.module import quiet
from tojax.torch.core.schema import table
from tojax.torch.engine.trace import watching
from tojax.torch.source import source_of


def skeleton(found: Checkpoint, task: str | None = None) -> torch.nn.Module:
    """The module that a checkpoint describes, on the meta device: no memory is allocated for
    weights.
    """
    cls, config = model_class(found, task), config_of(found)
    make = getattr(cls, "_from_config", None) or cls.from_config
    with quiet(), refusing(found, "build"), torch.device("meta"):
        return make(config).eval()


def operators(module: torch.nn.Module) -> tuple[Counter, dict[str, str], list[str]]:
    """(calls by operator, what serves each, names of those that nothing serves) of one forward
    pass.
    """
    source = source_of(module)
    shapes = source.slots.abstract()
    given = {k: np.asarray(v) for k, v in inputs.example(module).items()}
    missing: list[str] = []
    with watching() as seen:
        try:
            written = lambda params, state, kwargs: dict(source(params, state, (), kwargs)[1])
            jax.eval_shape(written, *shapes, given)
        except MissingOps as error:
            missing = list(error.ops)
        served = {str(op): _served(op) for op in seen}
    return Counter({str(op): n for op, n in seen.items()}), served, missing


def _served(op) -> str:
    row = table.get(op)
    if row is None:
        return "torch's decomposition"
    module = str(getattr(row.lowering, "__module__", "")).split(".")
    return (
        f"a lowering in {'/'.join(module[1:])}.py"
        if module[0] == "tojax"
        else ".".join((module[0], row.lowering.__name__))
    )
