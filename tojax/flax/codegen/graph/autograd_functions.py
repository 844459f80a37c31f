"""``torch.autograd.Function``: a file holds what its forward computes, and JAX differentiates that.

A class may have a backward of its own that is the same derivative, computed in another way. One
that is another gradient would be lost without a word.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.autograd import Function

from tojax.errors import Unsupported

Calls = dict[type[Function], tuple]
STEP = 1e-5  # in float64: differences are then right to about nine digits
CLOSE = 1e-3  # of the slopes: a forward that computes in float32 has fewer


def check(module: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> None:
    """Raises Unsupported where a Function that the module calls has a gradient of its own.

    Its backward is compared with how forward changes, at the operands of its first call.
    """
    if not any(map(_knows_functions, {type(m).__module__ for m in module.modules()})):
        return
    with _noted() as calls, torch.no_grad(), torch.random.fork_rng(devices=[]):
        copy.deepcopy(module)(*args, **kwargs)
    for kind, operands in calls.items():
        if not _same(kind, operands):
            line = inspect.getsourcelines(kind)[1]
            raise Unsupported(
                f"{kind.__name__} has a gradient of its own",
                where=f"{inspect.getsourcefile(kind)}:{line}",
                why="its backward is not the derivative of its forward, which the file would have",
                do="write that module by hand with jax.custom_vjp; partial=True leaves it in "
                "PyTorch, tojax.from_torch keeps its gradient",
            )


def _knows_functions(name: str) -> bool:
    held = vars(sys.modules[name]).values() if name in sys.modules else ()
    return any(isinstance(x, type) and issubclass(x, Function) and x is not Function for x in held)


@contextlib.contextmanager
def _noted() -> Iterator[Calls]:
    """The classes that are applied in here, with the operands of the first call."""
    calls: Calls = {}
    before = vars(Function)["apply"]

    def apply(cls: type[Function], *operands: Any, **options: Any) -> Any:
        calls.setdefault(cls, operands)
        return before.__get__(None, cls)(*operands, **options)

    Function.apply = classmethod(apply)
    try:
        yield calls
    finally:
        Function.apply = before


class _Context:
    """What forward may call on its first argument."""

    needs_input_grad: tuple[bool, ...] = ()
    save_for_backward = save_for_forward = lambda self, *tensors: None
    mark_dirty = mark_non_differentiable = lambda self, *tensors: None
    set_materialize_grads = lambda self, value: None


def _same(kind: type[Function], operands: tuple) -> bool:
    """Whether backward gives the slopes of forward; not so where it cannot be asked."""
    leaf = lambda x: x.detach().double().requires_grad_() if x.is_floating_point() else x
    given = [leaf(x) if isinstance(x, torch.Tensor) else x for x in operands]
    leaves = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad]
    own_context = kind.setup_context is Function.setup_context
    context: Any = _Context()
    context.needs_input_grad = tuple(isinstance(x, torch.Tensor) for x in given)
    forward = lambda given: _total(kind.forward(*([context] if own_context else []), *given))
    try:
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            theirs = _slopes(_total(kind.apply(*given)), leaves)
            return _along_a_line(forward, given, theirs)
    except (RuntimeError, AttributeError):
        return False


def _along_a_line(forward: Any, given: list[Any], slopes: list[torch.Tensor]) -> bool:
    """Whether forward changes as these slopes say, by differences: of what it writes to in place
    autograd has no derivative.
    """
    steps = [torch.randn_like(x) * STEP for x in slopes]

    def moved(sign: int) -> torch.Tensor:
        ways = iter(steps)
        tensor = lambda x: isinstance(x, torch.Tensor) and x.requires_grad
        torch.manual_seed(0)  # for what forward draws
        return forward([(x + sign * next(ways)).detach() if tensor(x) else x for x in given])

    with torch.no_grad():
        found = (moved(1) - moved(-1)) / 2
        said = sum((x * step).sum() for x, step in zip(slopes, steps))
    scale = sum(float((x * step).abs().sum()) for x, step in zip(slopes, steps))
    return bool((found - said).abs() <= CLOSE * max(scale, float(found.abs())))


def _total(out: Any) -> torch.Tensor:
    """One number of all results."""
    outs = [x for x in (out if isinstance(out, tuple) else [out]) if isinstance(x, torch.Tensor)]
    weights = lambda x: torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view(x.shape)
    floats = [x for x in outs if x.is_floating_point()]
    return sum(((x * weights(x)).sum() for x in floats), torch.zeros((), dtype=torch.double))


def _slopes(total: torch.Tensor, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    if not total.requires_grad:
        return [torch.zeros_like(x) for x in leaves]
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found)]
