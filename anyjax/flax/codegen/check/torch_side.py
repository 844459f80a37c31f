"""The values that torch computes, for comparison: outputs, slopes, a call in training mode."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
import torch
from torch.utils import _pytree as pytree

from anyjax import trees
from anyjax.compare.side import Call, input_name
from anyjax.compare.sides import torch_side
from anyjax.flax.codegen.check.closeness import arrays_of
from anyjax.torch.engine.callback import to_numpy

R = TypeVar("R")


class TorchSide:
    """The module with an example; each call leaves it as it was.

    Attributes:
      structure: how the latest call's outputs are nested.
    """

    def __init__(self, module: torch.nn.Module, args: tuple, kwargs: dict):
        self.module = module
        self.leaves, self.spec = pytree.tree_flatten((args, kwargs))

    def side(
        self, module: torch.nn.Module, leaves: list | None = None, training: bool = False
    ) -> torch_side.TorchSide:
        """Returns the module as a side of a comparison."""
        args, kwargs = pytree.tree_unflatten(leaves or self.leaves, self.spec)
        modes = dict.fromkeys((path for path, _ in module.named_modules()), training)
        return torch_side.TorchSide(module, Call(args, kwargs), modes)

    def values(self, leaves: list | None = None, seed: int = 0) -> list[np.ndarray]:
        """Returns the arrays of a result."""
        return self._run(self.side(self.module, leaves), seed)[0]

    def training_values(self, seed: int = 0) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        """Returns the arrays of a call in training mode, and the state dict after it."""
        return self._run(self.side(self.module, training=True), seed)

    def _run(
        self, side: torch_side.TorchSide, seed: int = 0, wide: bool = False
    ) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            out, buffers = side.run(wide)
        leaves, self.structure = pytree.tree_flatten(out)
        outputs = [x for x in leaves if isinstance(x, torch.Tensor)]
        weights = {k: to_numpy(v.detach()) for k, v in side.module.state_dict().items()}
        return arrays_of(outputs), weights | {k: x for k, x in buffers.items() if k in weights}

    def truth(
        self,
        compute: Callable[[torch_side.TorchSide, bool], R],
        leaves: list | None = None,
        training: bool = False,
    ) -> R:
        """Returns what is computed in 64 bits.

        A module that insists on its precision is called in that, with the last bits perturbed.
        """
        try:
            return compute(self.side(self.module, leaves, training), True)
        except (RuntimeError, TypeError):  # torch's, of mixed dtypes and kernels without doubles
            module, leaves = self.perturbed(leaves or self.leaves)
            return compute(self.side(module, leaves, training), False)

    def perturbed(self, leaves: list) -> tuple[torch.nn.Module, list]:
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

    def exact(self, training: bool = False, leaves: list | None = None) -> list[np.ndarray]:
        """Returns the true values."""
        return self.truth(lambda side, wide: self._run(side, 0, wide), leaves, training)[0]

    def exact_state(self) -> dict[str, np.ndarray]:
        """Returns the true state dict after a call in training mode."""
        return self.truth(lambda side, wide: self._run(side, 0, wide), training=True)[1]

    def slopes(self, weights: list[np.ndarray], exact: bool = False) -> tuple[dict, list]:
        """Returns the gradients of a weighted sum of the outputs, by name and by leaf.

        They are NaN for parameters that torch does not differentiate.
        """
        if exact:
            slopes = self.truth(lambda side, wide: side.gradients(weights, wide).values)
        else:
            slopes = self.side(self.module).gradients(weights).values
        slope = lambda name, x: slopes.get(name, [np.zeros(x.shape)])[0]
        none = lambda x: np.full(x.shape, np.nan) if _floats(x) else np.zeros(x.shape, int)
        state = self.module.state_dict().items()
        by_name = {k: none(x) for k, x in state if isinstance(x, torch.Tensor)}
        first = {id(x): k for k, x in self.module.named_parameters() if x.requires_grad}
        named = self.module.named_parameters(remove_duplicate=False)
        by_name |= {k: slope(first[id(x)], x) for k, x in named if id(x) in first and k in by_name}
        call = trees.register(pytree.tree_unflatten(self.leaves, self.spec))
        places = {id(x): input_name(i) for i, x in enumerate(jax.tree.leaves(call))}
        return by_name, [slope(places[id(x)], x) if _floats(x) else None for x in self.leaves]


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
