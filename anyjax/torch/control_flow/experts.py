"""transformers' experts on a mesh: the same function in each device's part of rows and experts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from anyjax.numerics import experts
from anyjax.torch.control_flow.region import Region
from anyjax.torch.core import private
from anyjax.torch.core.lifting import array_of


def in_parts(run: Callable) -> Callable:
    """Returns a function of experts, [rows, features] to the same, that is divided over a mesh.

    Args:
      run: transformers' ``grouped_mm_experts_forward(module, hidden, index, weights)``.
    """

    def forward(module, hidden, index, weights):
        mode = next((m for m in reversed(private.function_modes()) if hasattr(m, "trace")), None)
        if mode is None or mode.trace.tape is not None:
            return run(module, hidden, index, weights)
        stacks = {k: x for k, x in module._parameters.items() if x is not None and x.ndim > 1}
        if not stacks or any(x.shape[0] != module.num_experts for x in stacks.values()):
            return run(module, hidden, index, weights)
        sizes = [array_of(x) for x in (hidden, *stacks.values())]
        mesh, rows, axis = experts.divisions(sizes[0], index.shape[-1], sizes[1:])
        if mesh is None:
            return run(module, hidden, index, weights)

        def call(hidden, index, weights, *tensors):
            with _of(module, dict(zip(stacks, tensors)), bool(axis)):
                return run(module, hidden, index, weights)

        region = Region(mode, call, [hidden, index, weights, *stacks.values()])
        part = lambda *arrays: region(*arrays)[0]
        hidden, index, weights, *arrays = region.arrays
        of = mesh, rows, axis
        return region.rebuild([experts.in_parts(part, hidden, index, weights, arrays, *of)])

    return forward


@contextlib.contextmanager
def _of(module: torch.nn.Module, tensors: dict[str, torch.Tensor], own: bool) -> Iterator[None]:
    """Has a module its part of the experts: rows of others have indices beyond them, which
    transformers leaves out where it knows of parts.
    """
    count = next(iter(tensors.values())).shape[0]
    changes = (
        (module._parameters, tensors),
        (module.__dict__, {"num_experts": count, "_is_expert_parallel": own}),
    )
    originals = [{k: names[k] for k in values} for names, values in changes]
    for names, values in changes:
        names.update(values)
    try:
        yield
    finally:
        for (names, _), values in zip(changes, originals):
            names.update(values)
