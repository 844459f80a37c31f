"""``torch.autograd.Function``: the file has what forward computes, and JAX differentiates that.

A class may have a backward of its own that is the same derivative, computed in another way. One
that is another gradient would be lost without a word.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.autograd import Function

from anyjax.errors import Unsupported

OperandsByFunction = dict[type[Function], tuple]
STEP = 1e-5  # in float64: differences are then right to about nine digits
CLOSE = 1e-3  # of the slopes: a forward that computes in float32 has fewer


def check_gradients(module: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> None:
    """Raises Unsupported if a Function of the module has a backward that is no derivative of its
    forward, which is checked with the operands of its first call.
    """
    if not any(map(_defines_functions, {type(m).__module__ for m in module.modules()})):
        return
    with _recorded_calls() as calls, torch.no_grad(), torch.random.fork_rng(devices=[]):
        copy.deepcopy(module)(*args, **kwargs)
    for kind, operands in calls.items():
        if not _is_derivative(kind, operands):
            line = inspect.getsourcelines(kind)[1]
            raise Unsupported(
                f"{kind.__name__} has a gradient of its own",
                where=f"{inspect.getsourcefile(kind)}:{line}",
                why="its backward is not the derivative of its forward, which the file would have",
                do="write that module by hand with jax.custom_vjp; partial=True leaves it in "
                "PyTorch, anyjax.from_torch keeps its gradient",
            )


def _defines_functions(name: str) -> bool:
    members = vars(sys.modules[name]).values() if name in sys.modules else ()
    return any(
        isinstance(x, type) and issubclass(x, Function) and x is not Function for x in members
    )


@contextlib.contextmanager
def _recorded_calls() -> Iterator[OperandsByFunction]:
    """Records which Functions are applied, with the operands of their first call."""
    calls: OperandsByFunction = {}
    original_apply = vars(Function)["apply"]

    def apply(cls: type[Function], *operands: Any, **options: Any) -> Any:
        calls.setdefault(cls, operands)
        return original_apply.__get__(None, cls)(*operands, **options)

    Function.apply = classmethod(apply)
    try:
        yield calls
    finally:
        Function.apply = original_apply


class _Context:
    """The first argument of forward, with everything that it may call."""

    needs_input_grad: tuple[bool, ...] = ()
    save_for_backward = save_for_forward = lambda self, *tensors: None
    mark_dirty = mark_non_differentiable = lambda self, *tensors: None
    set_materialize_grads = lambda self, value: None


def _is_derivative(kind: type[Function], operands: tuple) -> bool:
    """Returns whether backward is the derivative of forward; False where it cannot be computed."""
    leaf = lambda x: x.detach().double().requires_grad_() if x.is_floating_point() else x
    inputs = [leaf(x) if isinstance(x, torch.Tensor) else x for x in operands]
    leaves = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
    own_context = kind.setup_context is Function.setup_context
    context: Any = _Context()
    context.needs_input_grad = tuple(isinstance(x, torch.Tensor) for x in inputs)
    forward = lambda inputs: _weighted_sum(
        kind.forward(*([context] if own_context else []), *inputs)
    )
    try:
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            slopes = _slopes(_weighted_sum(kind.apply(*inputs)), leaves)
            return _match_differences(forward, inputs, slopes)
    except (RuntimeError, AttributeError):
        return False


def _match_differences(forward: Callable, inputs: list[object], slopes: list[torch.Tensor]) -> bool:
    """Returns whether finite differences of forward agree with these slopes. They also hold where
    forward writes in place, which autograd cannot differentiate.
    """
    steps = [torch.randn_like(x) * STEP for x in slopes]

    def shifted(sign: int) -> torch.Tensor:
        directions = iter(steps)
        tensor = lambda x: isinstance(x, torch.Tensor) and x.requires_grad
        torch.manual_seed(0)  # for what forward draws
        return forward([(x + sign * next(directions)).detach() if tensor(x) else x for x in inputs])

    with torch.no_grad():
        difference = (shifted(1) - shifted(-1)) / 2
        predicted = sum((x * step).sum() for x, step in zip(slopes, steps))
    scale = sum(float((x * step).abs().sum()) for x, step in zip(slopes, steps))
    return bool((difference - predicted).abs() <= CLOSE * max(scale, float(difference.abs())))


def _weighted_sum(out: torch.Tensor | tuple) -> torch.Tensor:
    """Returns one number that depends on all results."""
    outs = [x for x in (out if isinstance(out, tuple) else [out]) if isinstance(x, torch.Tensor)]
    weights = lambda x: torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view(x.shape)
    floats = [x for x in outs if x.is_floating_point()]
    return sum(((x * weights(x)).sum() for x in floats), torch.zeros((), dtype=torch.double))


def _slopes(total: torch.Tensor, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    if not total.requires_grad:
        return [torch.zeros_like(x) for x in leaves]
    grads = torch.autograd.grad(total, leaves, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads)]
