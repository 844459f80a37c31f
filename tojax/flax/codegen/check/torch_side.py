"""What torch computes, for comparing with it: values, slopes, a call in training mode."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tojax.flax.codegen.check.closeness import arrays_of
from tojax.flax.codegen.graph.dropout_rates import unmodified
from tojax.torch.engine.callback import to_numpy


class TorchSide:
    """The module with an example; each call leaves it as it was."""

    def __init__(self, module: torch.nn.Module, args: Any, kwargs: Any):
        self.module = module
        self.leaves, self.spec = pytree.tree_flatten((args, kwargs))

    def called(
        self, leaves: list, seed: int = 0, module: torch.nn.Module = None
    ) -> list[torch.Tensor]:
        """The tensors of a result."""
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            found = pytree.tree_leaves((module or self.module)(*args, **kwargs))
        return [x for x in found if isinstance(x, torch.Tensor)]

    def values(self, leaves: list | None = None, seed: int = 0) -> list[np.ndarray]:
        """The arrays of a result."""
        with unmodified(self.module), torch.no_grad():
            return arrays_of(self.called(copy.deepcopy(leaves or self.leaves), seed))

    def trained(self, seed: int = 0) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        """Those of a call in training mode, and the state dict after it."""
        with unmodified(self.module), torch.no_grad():
            self.module.train()
            found = arrays_of(self.called(copy.deepcopy(self.leaves), seed))
            state = {k: to_numpy(v).copy() for k, v in self.module.state_dict().items()}
        return found, state

    def slopes(self, weights: list[np.ndarray | None]) -> tuple[dict, list]:
        """(by the names of the state dict, by leaves) those of the weighted sum of the outputs.

        A parameter that torch keeps as it is has NaN.
        """
        return _slopes(self, self.module, self.leaves, weights)

    def in_64_bits(self, leaves: list) -> tuple[Any, list]:
        """The module and its leaves with wide floats."""
        wide = lambda x: x.double() if _floats(x) else x
        return copy.deepcopy(self.module).double(), [wide(x) for x in leaves]

    def rounded(self, leaves: list) -> tuple[Any, list]:
        """The module and its leaves with each number off by less than its last bit."""
        draw = torch.Generator().manual_seed(0)
        module = copy.deepcopy(self.module)

        def moved(x: torch.Tensor) -> torch.Tensor:
            off = torch.rand(x.shape, generator=draw).to(x) * 2 - 1
            return x.detach() * (1 + torch.finfo(x.dtype).eps * off)

        with torch.no_grad():
            for x in (*module.parameters(), *module.buffers()):
                if _floats(x):
                    x.copy_(moved(x))
        return module, [moved(x) if _floats(x) else x for x in leaves]

    def truth(self, call: Callable[[Any, list], Any], leaves: list | None = None) -> Any:
        """What a call gives in 64 bits, or of other last bits where the module insists on its own:
        torch is as far from that as rounding brings it.
        """
        leaves = self.leaves if leaves is None else leaves
        try:
            return call(*self.in_64_bits(leaves))
        except Exception:
            return call(*self.rounded(leaves))

    def exact(self, training: bool = False, leaves: list | None = None) -> list[np.ndarray]:
        """The true values."""

        def called(module: torch.nn.Module, leaves: list) -> list[np.ndarray]:
            with torch.no_grad():
                found = self.called(leaves, module=module.train(training))
            return [_wide(x) for x in found]

        return self.truth(called, leaves)

    def exact_state(self) -> dict[str, np.ndarray]:
        """The true state dict after a call in training mode."""

        def called(module: torch.nn.Module, leaves: list) -> dict[str, np.ndarray]:
            with torch.no_grad():
                self.called(leaves, module=module.train())
            state = module.state_dict().items()
            return {k: _wide(v) for k, v in state if isinstance(v, torch.Tensor)}

        return self.truth(called)

    def exact_slopes(self, weights: list[np.ndarray | None]) -> tuple[dict, list]:
        """The true slopes."""
        return self.truth(lambda module, leaves: _slopes(self, module, leaves, weights))


def _wide(x: torch.Tensor) -> np.ndarray:
    """The numbers of an array, floats in 64 bits."""
    return (x.double() if _floats(x) else x).detach().numpy()


def _slopes(
    side: TorchSide, module: torch.nn.Module, leaves: list, weights: list
) -> tuple[dict, list]:
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


def _backwards(
    side: TorchSide, module: torch.nn.Module, held: list, weights: list
) -> dict[int, np.ndarray]:
    """The slopes of parameters and leaves, by their ids."""
    params = {id(x): x for x in module.parameters() if x.requires_grad}
    asked = [*params.values(), *(x for x in held if _floats(x) and x.requires_grad)]
    with unmodified(module), torch.enable_grad():  # which holds until slopes have read the buffers
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
