"""The operators that torch code calls, each in JAX and in torch with the same inputs."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import jax
import torch
from torch.overrides import TorchFunctionMode, resolve_name

from anyjax.compare.recorders.torch_calls import submodules, watched
from anyjax.typing import PyTree

LIBRARY = tuple(
    os.path.dirname(sys.modules[name].__file__ or "") + os.sep for name in ("torch", "anyjax")
)


@dataclass(frozen=True, eq=False)
class Operator:
    """One call of a torch function, with copies of its tensors.

    Attributes:
      path: of the module that calls it, a slash and the function's name; its number beyond the
        first.
      function: as torch names it.
      arguments: (args, kwargs) of the call.
      place: the line that calls it, outside of torch.
    """

    path: str
    function: Callable
    arguments: tuple[tuple, dict[str, PyTree]]
    place: str

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors among the arguments, in order."""
        return [x for x in jax.tree.leaves(self.arguments) if isinstance(x, torch.Tensor)]

    def __call__(self, *tensors: torch.Tensor) -> PyTree:
        """Calls the function with copies of these tensors in the place of its own."""
        values = iter(tensors)
        fill = lambda x: next(values).clone() if isinstance(x, torch.Tensor) else x
        args, kwargs = jax.tree.map(fill, self.arguments)
        return self.function(*args, **kwargs)

    @property
    def name(self) -> str:
        """The function's name in code, such as ``torch.nn.functional.gelu``; empty without one."""
        return resolve_name(self.function) or ""

    def source(self) -> str | None:
        """Returns the call in Python, with tensors ``x0``, ``x1``, ...; None if an argument cannot
        be written.
        """
        numbers = iter(range(len(self.tensors)))
        args, kwargs = self.arguments
        try:
            texts = [_written(x, numbers) for x in args]
            texts += [f"{k}={_written(x, numbers)}" for k, x in sorted(kwargs.items())]
        except TypeError:
            return None
        return f"{self.name}({', '.join(texts)})" if self.name.startswith("torch.") else None


def _written(value: PyTree, numbers: Iterator[int]) -> str:
    """Returns a value in Python.

    Raises:
      TypeError: it cannot be written.
    """
    match value:
        case torch.Tensor():
            return f"x{next(numbers)}"
        case None | bool() | int() | str() | torch.dtype() | torch.device():
            return f'torch.device("{value}")' if isinstance(value, torch.device) else repr(value)
        case float():
            return repr(value) if value - value == 0 else f'float("{value}")'
        case list():
            return f"[{', '.join(_written(x, numbers) for x in value)}]"
        case tuple():
            return f"({''.join(_written(x, numbers) + ', ' for x in value)})"
        case dict():
            pairs = (f"{k!r}: {_written(x, numbers)}" for k, x in sorted(value.items()))
            return f"{{{', '.join(pairs)}}}"
        case slice():
            bounds = (value.start, value.stop, value.step)
            return f"slice({', '.join(_written(x, numbers) for x in bounds)})"
    raise TypeError(type(value))


class Recorder(TorchFunctionMode):
    """Records the functions that the modules with a pattern in their paths call themselves."""

    def __init__(self, pattern: str):
        super().__init__()
        self.pattern = re.compile(pattern)
        self.operators: list[Operator] = []
        self._open = [""]
        self._counts: Counter[str] = Counter()

    @contextmanager
    def hooked(self, module: torch.nn.Module) -> Iterator[None]:
        """Follows the calls of submodules for a while."""
        enter = lambda path, *_: self._open.append(path)
        with watched(submodules(module), enter, lambda *_: self._open.pop()):
            yield

    def __torch_function__(
        self,
        func: Callable,
        types: tuple,
        args: tuple = (),
        kwargs: dict[str, PyTree] | None = None,
    ) -> PyTree:
        path, arguments = self._open[-1], (args, kwargs or {})
        is_read = getattr(func, "__name__", "") == "__get__"  # of an attribute, such as x.shape
        if is_read or not self.pattern.search(path):
            return func(*args, **arguments[1])
        copied = jax.tree.map(lambda x: _copy(x) if isinstance(x, torch.Tensor) else x, arguments)
        out = func(*args, **arguments[1])
        if isinstance(out, torch.Tensor) and out.is_floating_point() and jax.tree.leaves(copied):
            name = f"{path}/{(resolve_name(func) or func.__name__).rpartition('.')[2]}"
            count, self._counts[name] = self._counts[name], self._counts[name] + 1
            path = f"{name}#{count}" if count else name
            self.operators.append(Operator(path, func, copied, _place()))
        return out


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()


def _place() -> str:
    """Returns the line outside of torch that calls a function."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(LIBRARY):
        frame = frame.f_back
    return f"line {frame.f_lineno} of {frame.f_code.co_filename}".replace("\\", "/")
