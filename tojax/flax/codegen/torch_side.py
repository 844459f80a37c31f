"""What torch computes, for comparing with it: values, slopes, a call in training mode."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tojax.flax.codegen.likeness import arrays_of
from tojax.flax.codegen.rates import unchanged
from tojax.torch.engine.callback import to_numpy


class TorchSide:
    """The module with an example; each call leaves it as it was."""

    def __init__(self, module: torch.nn.Module, args: Any, kwargs: Any):
        self.module = module
        self.leaves, self.spec = pytree.tree_flatten((args, kwargs))

    def called(self, leaves: list, seed: int = 0, module: Any = None) -> list[torch.Tensor]:
        """The tensors of a result."""
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            found = pytree.tree_leaves((module or self.module)(*args, **kwargs))
        return [x for x in found if isinstance(x, torch.Tensor)]

    def values(self, leaves: list | None = None, seed: int = 0) -> list[np.ndarray]:
        """The arrays of a result."""
        with unchanged(self.module), torch.no_grad():
            return arrays_of(self.called(copy.deepcopy(leaves or self.leaves), seed))

    def trained(self, seed: int = 0) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        """Those of a call in training mode, and the state dict after it."""
        with unchanged(self.module), torch.no_grad():
            self.module.train()
            found = arrays_of(self.called(copy.deepcopy(self.leaves), seed))
            state = {k: to_numpy(v).copy() for k, v in self.module.state_dict().items()}
        return found, state

    def slopes(self, weights: list[np.ndarray | None]) -> tuple[dict, list]:
        """(by the names of the state dict, by leaves) those of the weighted sum of the outputs.

        A parameter that torch keeps as it is has NaN.
        """
        return _slopes(self, self.module, self.leaves, weights)

    def in_64_bits(self) -> tuple[Any, list]:
        """The module and its leaves with wide floats."""
        wide = lambda x: x.double() if _floats(x) else x
        return copy.deepcopy(self.module).double(), [wide(x) for x in self.leaves]

    def exact(self, training: bool = False) -> list[np.ndarray]:
        """The values in 64 bits."""
        module, leaves = self.in_64_bits()
        with torch.no_grad():
            found = self.called(leaves, module=module.train(training))
        return [x.detach().numpy() for x in found]

    def exact_slopes(self, weights: list[np.ndarray | None]) -> tuple[dict, list]:
        """The slopes in 64 bits."""
        return _slopes(self, *self.in_64_bits(), weights)


def _slopes(side: TorchSide, module: Any, leaves: list, weights: list) -> tuple[dict, list]:
    held = [x.detach().clone().requires_grad_() if _floats(x) else copy.deepcopy(x) for x in leaves]
    try:
        found = _backwards(side, module, held, weights)
    except RuntimeError:  # it may write to its inputs
        held = copy.deepcopy(leaves)
        found = _backwards(side, module, held, weights)
    named = dict(module.named_parameters(remove_duplicate=False))
    nan = lambda x: np.full(x.shape, np.nan, np.float32)
    by_name = {k: nan(v) for k, v in module.state_dict().items() if isinstance(v, torch.Tensor)}
    by_name |= {k: found[id(x)] for k, x in named.items() if id(x) in found and k in by_name}
    return by_name, [found.get(id(x)) for x in held]


def _backwards(side: TorchSide, module: Any, held: list, weights: list) -> dict[int, np.ndarray]:
    """The slopes of parameters and leaves, by their ids."""
    params = {id(x): x for x in module.parameters() if x.requires_grad}
    asked = [*params.values(), *(x for x in held if _floats(x) and x.requires_grad)]
    with unchanged(module), torch.enable_grad():  # which holds until slopes have read the buffers
        outs = side.called(held, module=module)
        used = [i for i, w in enumerate(weights) if w is not None and outs[i].requires_grad]
        given = [torch.as_tensor(weights[i]).to(outs[i]) for i in used]
        found: Any = [None] * len(asked)
        if used and asked:
            found = torch.autograd.grad([outs[i] for i in used], asked, given, allow_unused=True)
    return {id(x): _array(x, slope) for x, slope in zip(asked, found)}


def _array(x: torch.Tensor, slope: torch.Tensor | None) -> np.ndarray:
    slope = torch.zeros_like(x) if slope is None else slope.to_dense() if slope.is_sparse else slope
    return slope.detach().cpu().numpy() if x.dtype == torch.double else to_numpy(slope)


def _floats(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def other_sizes(leaves: list, shapes: list) -> Iterator[list]:
    """The example with one row more, one place less, or both; sizes that may vary in ``shapes``."""
    tensors = [x for x, shape in zip(leaves, shapes) if shape is not None and x.ndim]
    if not tensors:
        return
    rows = tensors[0].shape[0]
    length = next((x.shape[1] for x in tensors if x.ndim in (2, 3)), 0)
    for more, less in ((True, True), (True, False), (False, True)):
        yield [_resized(x, s, rows * more, length * less) for x, s in zip(leaves, shapes)]


def _resized(x: Any, shape: Any, rows: int, length: int) -> Any:
    """One array; rows or a length of 0 stay as they are."""
    if shape is None:
        return x
    free = [not isinstance(size, int) for size in shape]
    if rows and x.ndim and free[0] and x.shape[0] == rows:
        x = torch.cat([x, x[:1]])
    if length > 2:
        for dim in range(1, x.ndim):
            if free[dim] and x.shape[dim] == length and (dim == 1 or x.ndim > 3):
                x = x.narrow(dim, 0, length - 1)
    return x.contiguous()
