"""Calls of torch submodules, and differences of outputs; no module is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from anyjax.compare.differences import apart
from anyjax.flax.matching.stored import as_numpy
from anyjax.trees import is_array, register

if TYPE_CHECKING:
    import torch

Arrays = list[np.ndarray]


class Call(NamedTuple):
    """A call of a torch submodule: its arrays."""

    path: str
    inputs: Arrays
    outputs: Arrays


def arrays(tree: object) -> Arrays:
    """Returns the arrays of a call's arguments or result, on the host."""
    leaves = jax.tree.leaves(register(tree))
    return [as_numpy(x) for x in leaves if is_array(x)]


def record_calls(module: torch.nn.Module, args: tuple | Mapping[str, Any]) -> list[Call]:
    """Runs a module in evaluation mode, and returns the first call of each submodule in the order
    of return.
    """
    import torch

    from anyjax.compare.recorders.torch_calls import unmodified, watched

    calls: dict[str, Call] = {}

    def leave(path: str, args: tuple, kwargs: dict, out: object) -> None:
        calls.setdefault(path, Call(path, arrays((args, kwargs)), arrays(out)))

    named_modules = module.named_modules()
    with unmodified(module), watched(named_modules, leave=leave), torch.no_grad():
        module.eval()
        device = next((p.device for p in module.parameters()), None)
        by_position = isinstance(args, tuple)
        positional, named = tensors((args, {}) if by_position else ((), args), device)
        result = module(*positional, **named)
    calls.pop("", None)
    return [*calls.values(), Call("", arrays(args), arrays(result))]


def tensors(args: tuple, device: torch.device | None = None) -> tuple:
    """Converts the arrays among arguments to torch tensors."""
    import torch

    def as_tensor(x: object) -> torch.Tensor:
        tensor = x if isinstance(x, torch.Tensor) else torch.from_numpy(np.array(x))
        return tensor.to(device)

    return jax.tree.map(lambda x: as_tensor(x) if is_array(x) else x, args)


def call_on_random(module: torch.nn.Module, widths: list[int]) -> Call | None:
    """Calls a torch submodule on random numbers, of the first shape that it takes."""
    random = np.random.default_rng(0)
    for shape in [s for n in widths for s in ((2, 5, n), (2, n), (2, n, 8, 8), (2, n, 9))]:
        x = random.standard_normal(shape).astype(np.float32)
        try:
            return record_calls(module, (x,))[-1]
        except Exception:  # any error of a module that does not take this shape
            continue
    return None


def channels_last(x: np.ndarray) -> np.ndarray:
    """Moves channels from the second to the last axis."""
    return np.moveaxis(x, 1, -1)


def channels_first(x: np.ndarray) -> np.ndarray:
    """Moves channels from the last to the second axis."""
    return np.moveaxis(x, -1, 1)


def difference(got: Arrays, want: Arrays) -> float:
    """Returns the largest difference of the first outputs, as a fraction of the largest value;
    infinite if the shapes differ. Channels may be second or last.
    """
    if not got or not want:
        return np.inf
    x, y = got[0], want[0]
    return min(apart(x, z, 1e-30) for z in (y, *([channels_last(y)] if y.ndim > 2 else [])))


def closest_difference(flax: Arrays, torch: Arrays) -> float:
    """Returns the smallest ``difference`` of all pairs: arguments may come in another order."""
    pairs = [(a, b) for a in flax for b in torch]
    return min((difference([a], [b]) for a, b in pairs), default=np.inf)


def candidate_args(inputs: Arrays) -> Iterator[tuple]:
    """Yields arguments that a flax submodule may take, from those of torch."""
    for count in dict.fromkeys((len(inputs), 1)):
        args = inputs[:count]
        is_map = lambda x: x.ndim > 2 and x.dtype.kind == "f"
        yield tuple(args)
        if any(map(is_map, args)):
            yield tuple(channels_last(x) if is_map(x) else x for x in args)
