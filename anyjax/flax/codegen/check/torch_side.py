"""The values that torch computes, for comparison: outputs, slopes, a call in training mode."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from anyjax.flax.codegen.check.closeness import arrays_of
from anyjax.flax.codegen.graph.module_calls import unmodified
from anyjax.torch.engine.callback import to_numpy


class TorchSide:
    """The module with an example; each call leaves it as it was."""

    def __init__(self, module: torch.nn.Module, args: tuple, kwargs: dict):
        self.module = module
        self.leaves, self.spec = pytree.tree_flatten((args, kwargs))

    def call(
        self, leaves: list, seed: int = 0, module: torch.nn.Module = None
    ) -> list[torch.Tensor]:
        """Returns the tensors of a result."""
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            outputs = pytree.tree_leaves((module or self.module)(*args, **kwargs))
        return [x for x in outputs if isinstance(x, torch.Tensor)]

    def values(self, leaves: list | None = None, seed: int = 0) -> list[np.ndarray]:
        """Returns the arrays of a result."""
        with unmodified(self.module), torch.no_grad():
            return arrays_of(self.call(copy.deepcopy(leaves or self.leaves), seed))

    def training_values(self, seed: int = 0) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        """Returns the arrays of a call in training mode, and the state dict after it."""
        with unmodified(self.module), torch.no_grad():
            self.module.train()
            values = arrays_of(self.call(copy.deepcopy(self.leaves), seed))
            state = {k: to_numpy(v).copy() for k, v in self.module.state_dict().items()}
        return values, state

    def slopes(self, weights: list[np.ndarray | None]) -> tuple[dict, list]:
        """Returns the gradients of a weighted sum of the outputs, by name and by leaf.

        They are NaN for parameters that torch does not differentiate.
        """
        return _slopes(self, self.module, self.leaves, weights)

    def in_double(self, leaves: list) -> tuple[Any, list]:
        """Returns the module and its leaves in 64 bits."""
        wide = lambda x: x.double() if _floats(x) else x
        return copy.deepcopy(self.module).double(), [wide(x) for x in leaves]

    def perturbed(self, leaves: list) -> tuple[Any, list]:
        """Returns the module and its leaves with each number off by less than its last bit."""
        draw = torch.Generator().manual_seed(0)
        module = copy.deepcopy(self.module)

        def perturbed(x: torch.Tensor) -> torch.Tensor:
            noise = torch.rand(x.shape, generator=draw).to(x) * 2 - 1
            return x.detach() * (1 + torch.finfo(x.dtype).eps * noise)

        with torch.no_grad():
            for x in (*module.parameters(), *module.buffers()):
                if _floats(x):
                    x.copy_(perturbed(x))
        return module, [perturbed(x) if _floats(x) else x for x in leaves]

    def truth(self, call: Callable[[Any, list], Any], leaves: list | None = None) -> Any:
        """Returns the result of a call in 64 bits.

        A module that insists on its precision is called in that, with the last bits perturbed.
        """
        leaves = self.leaves if leaves is None else leaves
        try:
            return call(*self.in_double(leaves))
        except (RuntimeError, TypeError):  # torch's, of mixed dtypes and kernels without doubles
            return call(*self.perturbed(leaves))

    def exact(self, training: bool = False, leaves: list | None = None) -> list[np.ndarray]:
        """Returns the true values."""

        def called(module: torch.nn.Module, leaves: list) -> list[np.ndarray]:
            with torch.no_grad():
                outputs = self.call(leaves, module=module.train(training))
            return [_wide(x) for x in outputs]

        return self.truth(called, leaves)

    def exact_state(self) -> dict[str, np.ndarray]:
        """Returns the true state dict after a call in training mode."""

        def called(module: torch.nn.Module, leaves: list) -> dict[str, np.ndarray]:
            with torch.no_grad():
                self.call(leaves, module=module.train())
            state = module.state_dict().items()
            return {k: _wide(v) for k, v in state if isinstance(v, torch.Tensor)}

        return self.truth(called)

    def exact_slopes(self, weights: list[np.ndarray | None]) -> tuple[dict, list]:
        """Returns the true slopes."""
        return self.truth(lambda module, leaves: _slopes(self, module, leaves, weights))


def _wide(x: torch.Tensor) -> np.ndarray:
    """Returns the numbers of an array, floats in 64 bits."""
    return (x.double() if _floats(x) else x).detach().numpy()


def _slopes(
    side: TorchSide, module: torch.nn.Module, leaves: list, weights: list
) -> tuple[dict, list]:
    copies = [
        x.detach().clone().requires_grad_() if _floats(x) else copy.deepcopy(x) for x in leaves
    ]
    try:
        slopes = _backwards(side, module, copies, weights)
    except RuntimeError:  # it may write to its inputs
        copies = copy.deepcopy(leaves)
        slopes = _backwards(side, module, copies, weights)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    none = lambda x: np.full(x.shape, np.nan, np.float32) if _floats(x) else np.zeros(x.shape, int)
    by_name = {k: none(v) for k, v in module.state_dict().items() if isinstance(v, torch.Tensor)}
    by_name |= {k: slopes[id(x)] for k, x in parameters.items() if id(x) in slopes and k in by_name}
    return by_name, [slopes.get(id(x)) for x in copies]


def _backwards(
    side: TorchSide, module: torch.nn.Module, leaves: list, weights: list
) -> dict[int, np.ndarray]:
    """Returns the slopes of parameters and leaves, by their ids."""
    params = {id(x): x for x in module.parameters() if x.requires_grad}
    targets = [*params.values(), *(x for x in leaves if _floats(x) and x.requires_grad)]
    with unmodified(module), torch.enable_grad():  # which holds until slopes have read the buffers
        outs = side.call(leaves, module=module)
        used_outputs = [i for i, w in enumerate(weights) if w is not None and outs[i].requires_grad]
        cotangents = [torch.as_tensor(weights[i]).to(outs[i]) for i in used_outputs]
        slopes: Any = [None] * len(targets)
        if used_outputs and targets:
            slopes = torch.autograd.grad(
                [outs[i] for i in used_outputs], targets, cotangents, allow_unused=True
            )
    return {id(x): _array(x, slope) for x, slope in zip(targets, slopes)}


def _array(x: torch.Tensor, slope: torch.Tensor | None) -> np.ndarray:
    slope = torch.zeros_like(x) if slope is None else slope.to_dense() if slope.is_sparse else slope
    return slope.detach().cpu().numpy() if x.dtype == torch.double else to_numpy(slope)


def _floats(x: object) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def resized_examples(leaves: list, shapes: list) -> Iterator[list]:
    """Yields the example with one row more, one place less, or both, where ``shapes`` may vary."""
    tensors = [x for x, shape in zip(leaves, shapes) if shape is not None and x.ndim]
    if not tensors:
        return
    rows = tensors[0].shape[0]
    length = next((x.shape[1] for x in tensors if x.ndim in (2, 3)), 0)
    for adds_row, drops_place in ((True, True), (True, False), (False, True)):
        yield [
            _resized(x, s, rows * adds_row, length * drops_place) for x, s in zip(leaves, shapes)
        ]


def _resized(x: Any, shape: Sequence | None, rows: int, length: int) -> Any:
    """Returns one array; rows or a length of 0 stay as they are."""
    if shape is None:
        return x
    varies = [not isinstance(size, int) for size in shape]
    if rows and x.ndim and varies[0] and x.shape[0] == rows:
        x = torch.cat([x, x[:1]])
    if length > 2:
        for dim in range(1, x.ndim):
            if varies[dim] and x.shape[dim] == length and (dim == 1 or x.ndim > 3):
                x = x.narrow(dim, 0, length - 1)
    return x.contiguous()
