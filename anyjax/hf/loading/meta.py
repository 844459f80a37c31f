"""A checkpoint's model without weights: shapes on the meta device, operators of a trace."""

from __future__ import annotations

from collections import Counter

import jax
import numpy as np
import torch

from anyjax.errors import MissingOps
from anyjax.hf.loading import inputs
from anyjax.hf.loading.decide import decide
from anyjax.hf.loading.find.checkpoint import Checkpoint
from anyjax.torch.core.schema import table
from anyjax.torch.engine.trace import watching
from anyjax.torch.source import source_of


def skeleton(checkpoint: Checkpoint, task: str | None = None) -> torch.nn.Module:
    """Builds the module that a checkpoint describes, on the meta device: without any weights."""
    return decide(checkpoint, task).skeleton()


def operators(module: torch.nn.Module) -> tuple[Counter, dict[str, str], list[str]]:
    """Returns (calls by operator, what implements each, missing operators) of one forward pass."""
    source = source_of(module)
    shapes = source.slots.abstract()
    example = {k: np.asarray(v) for k, v in inputs.example(module).items()}
    missing: list[str] = []
    with watching() as calls:
        try:
            state_after = lambda params, state, kwargs: dict(source(params, state, (), kwargs)[1])
            jax.eval_shape(state_after, *shapes, example)
        except MissingOps as error:
            missing = list(error.ops)
        implementations = {str(op): _implementation(op) for op in calls}
    return Counter({str(op): n for op, n in calls.items()}), implementations, missing


def _implementation(op) -> str:
    row = table.get(op)
    if row is None:
        return "torch's decomposition"
    module = str(getattr(row.lowering, "__module__", "")).split(".")
    return (
        f"a lowering in {'/'.join(module[1:])}.py"
        if module[0] == "anyjax"
        else ".".join((module[0], row.lowering.__name__))
    )
