"""Calls of ``torch.*`` and of tensors' methods, before torch takes them apart.

Most go to torch as they are. What the dispatcher could not serve has a handler, and the handlers
stand in the order in which they are asked: first what code asks of values, with the tensors as they
were given; then, with tensors from outside of the trace as constants that may be written to, what
is served as a whole. What is left may write to memory that tensors share: aliasing/writes.py.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Container
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from anyjax import warn_once
from anyjax.dtypes import x64
from anyjax.errors import UncheckedValues
from anyjax.torch.aliasing import aliases, in_place, writes
from anyjax.torch.aliasing.no_grad_views import Detached
from anyjax.torch.aliasing.overlapping import Expanded
from anyjax.torch.autograd import backward, hooks, requires_grad
from anyjax.torch.compat import subclasses
from anyjax.torch.control_flow import higher_order
from anyjax.torch.core import diagnostics, dispatcher, private
from anyjax.torch.core.lifting import inner, is_traced, lift
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.data_dependent import sizes_of_values, traced_numbers, value_queries
from anyjax.torch.data_dependent.traced_index import GET, SET, Picked
from anyjax.torch.engine import tensor_lists
from anyjax.torch.lowering import custom_operators
from anyjax.torch.lowering.out import into

# Every model reads these more often than it computes.
SHAPES = {getattr(torch.Tensor, name).__get__ for name in ("shape", "dtype", "device")}

SOBOL = {value for name, value in vars(torch).items() if name.startswith("_sobol_engine_")}

Serve = Callable[["FunctionMode", Any, tuple, dict[str, Any]], Any]


class Handler(NamedTuple):
    """``serve(mode, func, args, kwargs)`` gives a result, or NotImplemented to let the call pass;
    it is asked about these ``functions``, None for all while something is ``pending``.
    """

    serve: Serve
    functions: Container[Any] | None
    why: str


def deepcopied(mode, func, args, kwargs) -> Any:
    """Returns a leaf of its own: no gradient comes back through it."""
    tensor, memo = args
    with mode:
        copy = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        copy = requires_grad.named_parameter(copy) if requires_grad.is_parameter(tensor) else copy
        return memo.setdefault(id(tensor), copy)


def listed(mode, func, args, kwargs) -> Any:
    """``torch.tensor`` of lists that hold tensors."""
    if not args or not tensor_lists.holds_tensors(args[0]):
        return NotImplemented
    with mode:
        return tensor_lists.stacked(*args, **kwargs)


def doubled(mode, func, args, kwargs) -> Any:
    """A cast to float64 that somebody's own code asks for: JAX keeps 32 bits, which is said."""
    wide = func is torch.Tensor.double
    wide |= any(x is torch.float64 for x in (*args[1:], *kwargs.values()))
    if wide and not x64() and is_traced(args[0]):
        frame: Any = sys._getframe(1)
        while frame.f_globals.get("__name__", "").startswith("anyjax."):
            frame = frame.f_back
        if frame.f_globals.get("__name__", "").partition(".")[0] not in ("torch", "transformers"):
            warn_once.warn(
                f"a cast to torch.float64 keeps 32 bits ({diagnostics.where()}); "
                'jax.config.update("jax_enable_x64", True) gives 64',
                UncheckedValues,
            )
    return NotImplemented


def stored(mode, func, args, kwargs) -> Any:
    """``set_`` to memory: a constant."""
    if len(args) < 2 or isinstance(args[1], torch.Tensor):
        return NotImplemented
    with dispatcher.plain():
        constant = torch.empty(0, dtype=args[0].dtype).set_(*args[1:], **kwargs)
    return func(args[0], lift(constant))


def constants(mode, func, args, kwargs) -> Any:
    """Runs an operator on tensors that no input reaches in torch."""
    tensors = [inner(x) if isinstance(x, torch.Tensor) else x for x in args]
    if any(isinstance(x, JaxTensor) for x in tensors):
        return NotImplemented
    with dispatcher.plain():
        return lift(func(*tensors, **kwargs))


def renormed(mode, func, args, kwargs) -> Any:
    """``max_norm``: the rows that are read are first cut to it, in the table itself."""
    bound = inspect.signature(func).bind(*args, **kwargs).arguments
    if bound.get("max_norm") is None:
        return NotImplemented
    rows = bound["input"].contiguous(), bound.pop("max_norm"), bound.pop("norm_type", 2.0)
    with mode, torch.no_grad():
        torch.embedding_renorm_(bound["weight"], *rows)
    return mode.call(func, (), bound)


def index(mode, func, args, kwargs) -> Any:
    """``x[...]`` and ``x[...] = y``."""
    with mode:
        args = (args[0], tensor_lists.index_of(args[1]), *args[2:])
        if value_queries.is_number(args[1]):  # a mask of one number, which torch would read
            args = (args[0].unsqueeze(0), args[1].unsqueeze(0), *args[2:])
    selected = value_queries.pick(mode, func, args, kwargs)
    return mode.call(func, args, kwargs) if selected is NotImplemented else selected


QUESTIONS = (
    Handler(
        requires_grad.serve, requires_grad.ANSWERS, "torch's autograd is off and does not know"
    ),
    Handler(hooks.register_hook, hooks.REGISTERS, "gradients are JAX's"),
    Handler(backward.ask, backward.ASKS, "torch's own Python reads requires_grad of its tensors"),
    Handler(
        value_queries.sizes,
        {torch.Tensor.tolist},
        "sizes of groups may stay in the program: asked before other reads, which need values",
    ),
    Handler(
        value_queries.values, value_queries.READS, "no memory to read: only constants have values"
    ),
    Handler(
        value_queries.ask,
        value_queries.ASKS,
        "the line that asks may tell what a condition is taken for",
    ),
    Handler(value_queries.turns, sizes_of_values.ASKS, "a loop may have as many turns"),
    Handler(sizes_of_values.ask, sizes_of_values.ASKS, "a size may follow, within a bound"),
    Handler(sizes_of_values.sized, sizes_of_values.SIZED, "torch takes no tensors for sizes"),
    Handler(value_queries.equal, value_queries.EQUAL, "a condition on values, as bool(x) is"),
    Handler(value_queries.repair, None, "what follows an answered condition is the body of its if"),
    Handler(value_queries.unsized, None, "groups of unknown sizes are no tensors"),
    Handler(value_queries.show, value_queries.SHOWS, "a traced value has no digits to print"),
    Handler(
        higher_order.serve,
        higher_order.HigherOrder(),
        "branches and loops, before torch starts its own compiler for them",
    ),
    Handler(
        value_queries.split,
        value_queries.TENSOR_SPLIT,
        "torch reads the places to split at from memory",
    ),
    Handler(doubled, {torch.Tensor.double, torch.Tensor.to}, "JAX keeps 32 bits unless x64 is on"),
    Handler(stored, {torch.Tensor.set_}, "torch would give a functional tensor memory of its own"),
    Handler(deepcopied, {torch.Tensor.__deepcopy__}, "torch copies memory, which there is none of"),
    Handler(
        traced_numbers.serve,
        traced_numbers.FUNCTIONS,
        "torch reads a number from memory, of which only values follow",
    ),
    Handler(listed, tensor_lists.MAKERS, "torch reads the tensors in a list from memory"),
)
SERVED = (
    Handler(
        custom_operators.serve,
        custom_operators.Aliasing(),
        "functionalization knows no aliases but those of torch's own operators",
    ),
    Handler(
        renormed,
        {torch.nn.functional.embedding, torch.nn.functional.embedding_bag},
        "the table's gradient is that of the rows as they are read",
    ),
    Handler(constants, SOBOL, "functionalization does not know what they write to"),
    Handler(index, {GET, SET}, "a traced integer as an index has a static form"),
)


@lru_cache(4096)
def handlers(
    func: Callable, pending: bool
) -> tuple[Callable, tuple[Serve, ...], tuple[Serve, ...]]:
    """Returns (a form of the function that functionalization knows, what is asked about it)."""
    func = aliases.FOLLOWED.get(func) or in_place.known(func)
    asks = lambda h: pending if h.functions is None else func in h.functions
    serving = lambda all: tuple(h.serve for h in all if asks(h))
    return func, serving(QUESTIONS), serving(SERVED)


class FunctionMode(TorchFunctionMode):
    """Sees the calls of one trace.

    Attributes:
      trace: the trace.
      picked: what was read at traced indices.
      detached, expanded: views that writes have to know of.
      guard: a condition that was answered, whose body comes next.
      outside: tensors from outside of the trace, by id, with the constants that they became.
    """

    def __init__(self, trace):
        super().__init__()
        self.trace = trace
        self.guard: Any = None
        self.outside: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    # Made where a program needs them; writes have to know of these views from then on.
    tracks_views = False
    picked = cached_property(lambda self: Picked())
    detached = cached_property(lambda self: Detached())
    expanded = cached_property(lambda self: Expanded())

    def __torch_function__(self, func, types, args=(), kwargs=None):
        pending = self.guard is not None or bool(self.trace.unknown)
        if func in SHAPES and not pending and subclasses.PLAIN.issuperset(types):
            return func(*args)
        kwargs = kwargs or {}
        if not subclasses.PLAIN.issuperset(types):
            out = subclasses.served(self, func, types, args, kwargs)
            if out is not NotImplemented:
                return out
        original = func
        func, questions, served = handlers(original, pending)
        self.trace.autocast = not private.is_excluded(private.AUTOCAST_CPU)
        if kwargs.pop("requires_grad", False):
            with self:
                return func(*args, **kwargs).requires_grad_()
        if "generator" in kwargs:
            self.trace.generators.meet(kwargs)
        if not torch.is_grad_enabled():
            self.detached.renew((*args, *kwargs.values()))
        for serve in questions:
            out = serve(self, func, args, kwargs)
            if out is not NotImplemented:
                return out
        for value in args:
            if isinstance(value, torch.Tensor) and not private.is_functional(value):
                args = tuple(self.constant(a) if isinstance(a, torch.Tensor) else a for a in args)
                break
        if kwargs.get("out") is not None:
            with self:
                return into(original, args, kwargs)
        for serve in served:
            out = serve(self, func, args, kwargs)
            if out is not NotImplemented:
                return out
        return self.call(func, args, kwargs)

    def call(self, func, args, kwargs) -> Any:
        free = torch.is_grad_enabled() and not writes.concerned(func)
        if free and self.tracks_views and args:
            view = id(args[0])
            free = view not in self.detached.views and view not in self.expanded.known
        out = func(*args, **kwargs) if free else writes.call(self, func, args, kwargs)
        if type(out) is torch.Tensor:
            private.forbid_pointer(out)
        if "picked" in vars(self) and self.picked.found:
            with self:
                self.picked.sync()
        return out

    def constant(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor from outside, the same functional one each time it is met."""
        ours = isinstance(tensor, JaxTensor) or private.is_functional(tensor)
        if ours or private.level_of(tensor) != -1:
            return tensor
        if id(tensor) in self.trace.weights:
            return self.trace.weights[id(tensor)]
        if id(tensor) not in self.outside:
            self.outside[id(tensor)] = tensor, lift(tensor.detach())
        return self.outside[id(tensor)][1]
