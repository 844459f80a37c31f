"""``torch.autograd.Function``: its backward counts, not the derivative of its forward.

torch's ``apply`` is C++, and code keeps it in variables. But it asks the class for
``_backward_cls``, ``forward`` and ``setup_context``, in this order, and these are served by
properties of the metaclass while a thread traces.

Both directions are traced when the function is called, while all that they refer to is there.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple, cast

import jax
import torch
from torch.utils._pytree import tree_unflatten

from anyjax.errors import AnyjaxError, ForwardFailed, Unsupported
from anyjax.torch.aliasing.leaves import hold
from anyjax.torch.aliasing.no_grad_views import functional, of_one_memory
from anyjax.torch.core import current_trace, diagnostics, private
from anyjax.torch.core.lifting import array_of, inner, lift, put
from anyjax.torch.core.pytrees import flatten
from anyjax.torch.core.tensor import GRADIENT, JaxTensor, differentiable, needs_gradient, origins_of

ORDERS = 2  # of derivatives of a function whose backward calls itself
MANY = 3  # outputs whose gradients may be None or not: a program for each combination


class Context:
    """The ``ctx`` from ``forward`` to ``backward``: saved tensors, attributes, which inputs need
    gradients.
    """

    def __init__(self, wanted: tuple):
        self.needs_input_grad = wanted
        self._saved: dict[str, tuple] = {}
        self._pushing = False
        self._constant: set[int] = set()
        self._dirty: set[int] = set()
        self._zeros = True

    @contextlib.contextmanager
    def pushing(self) -> Iterator[None]:
        """While jvp runs."""
        self._pushing = True
        try:
            yield
        finally:
            self._pushing = False

    def save_for_backward(self, *tensors):
        """Keeps tensors for backward, and for jvp where nothing is kept for it."""
        self._saved["backward"] = tensors

    def save_for_forward(self, *tensors):
        """Keeps tensors for jvp."""
        self._saved["forward"] = tensors

    @property
    def saved_tensors(self):
        """The tensors that were kept, as new ones: a write to them is none to those."""
        saved = self._saved.get("forward" if self._pushing else "backward")
        saved = next(iter(self._saved.values()), ()) if saved is None else saved
        return tuple(x if x is None else lift(inner(x)) for x in saved)

    def mark_non_differentiable(self, *tensors):
        """These results have no gradient."""
        self._constant |= {*map(id, tensors)}

    def set_materialize_grads(self, value):
        """Says whether backward gets zeros, or None, for results that nothing was computed from."""
        self._zeros = value

    def mark_dirty(self, *tensors):
        """These arguments were written to, and are results."""
        self._dirty |= {*map(id, tensors)}


class Applying(threading.local):
    """How far torch has come with an ``apply`` in this thread."""

    cls: Any = None  # its forward comes next
    follows = True  # whether autograd was on around it
    done: type | None = None  # its setup_context comes next, which ours has called


APPLYING = Applying()


def backward_class(own: Callable, cls: type) -> Any:
    """Asked for when a call of ``apply`` begins, also of one that was kept from before."""
    APPLYING.cls, APPLYING.follows = cls, torch.is_grad_enabled()
    return own(cls)


def forward(own: Callable, cls: Any) -> Any:
    """Returns the function itself, or what serves it where ``apply`` asks for it."""
    function = own(cls)
    if APPLYING.cls is not cls:
        return function
    APPLYING.cls = None
    if getattr(cls, "of_jax", False):  # JAX differentiates what it computes
        return function
    follows = APPLYING.follows
    setup = cls.setup_context
    if setup is private.SingleLevelFunction.setup_context:
        setup = None
    base = torch.autograd.Function
    backward = cls.backward if cls.vjp is base.vjp else cls.vjp
    push = None if cls.jvp is base.jvp else cls.jvp
    served = Function(cls.__name__, function, setup, backward, push)

    def serve(*args: Any) -> Any:
        with torch.set_grad_enabled(follows):  # torch has switched it off
            out = served(args if setup else args[1:])
        APPLYING.done = cls if setup else None
        return out

    return serve


def setup_context(own: Callable, cls: type) -> Any:
    """Returns the function itself, or nothing where forward was served."""
    if APPLYING.done is not cls:
        return own(cls)
    APPLYING.done = None
    return lambda ctx, inputs, output: None


class Function(NamedTuple):
    """A function of tensors and what torch takes for its derivative.

    Attributes:
      setup: ``setup(ctx, inputs, output)`` after ``forward(*args)``; None where it is
        ``forward(ctx, *args)``.
      jvp: None where it follows from backward.
      nested: whether lists of tensors have gradients, as those of operators do.
    """

    name: str
    forward: Callable
    setup: Callable | None
    backward: Callable
    jvp: Callable | None = None
    nested: bool = False

    def __call__(self, args: tuple) -> Any:
        """Returns the results, with the gradients that the function has in torch."""
        leaves, rebuild = self.flat(args)
        follows = torch.is_grad_enabled()
        needs = [follows and _needs_gradient(x) for x in leaves]
        ctx = Context(rebuild(needs))
        inputs = [x for x, wants in zip(leaves, needs) if wants]
        with detached(inputs) as originals:
            if self.setup is None:
                out = self.forward(ctx, *args)
            else:
                out = self.forward(*args)
                self.setup(ctx, args, out)
        return Call(self, ctx, args, needs, originals, out).results() if inputs else out

    def flat(self, values: tuple) -> tuple[list[Any], Callable[[list[Any]], tuple]]:
        """Returns what may have a gradient each, and how they become such values again."""
        if not self.nested:
            return [*values], tuple
        leaves, structure = flatten(values)
        return leaves, lambda new: tree_unflatten(new, structure)


def _needs_gradient(value: object) -> bool:
    return isinstance(value, torch.Tensor) and needs_gradient(inner(value))


@contextlib.contextmanager
def detached(tensors: Sequence[torch.Tensor]) -> Iterator[list[Any]]:
    """Takes gradients off these tensors for a while; what is written to them stays. Yields their
    values with gradients.
    """
    exchanging = current_trace.trace().mode.picked.exchanging
    originals = [inner(x) for x in tensors]
    cut = [x.detached() for x in originals]
    arrays = [x.array for x in cut]
    with exchanging():
        for tensor, value in zip(tensors, cut):
            private.replace(tensor, value)
    yield originals
    with exchanging():
        for tensor, value, array in zip(tensors, originals, arrays):
            if array_of(tensor) is array:
                private.replace(tensor, value)


class Call:
    """One call: which tensors went in and came out, and the programs of both directions."""

    def __init__(
        self, function: Function, ctx: Context, args: tuple, needs: list, inputs: list, out: object
    ):
        self.function, self.ctx, self.needs, self.inputs = function, ctx, needs, inputs
        self.args, self.rebuild_args = function.flat(args)
        self.single = not isinstance(out, tuple)
        self.leaves, self.rebuild = function.flat(out if isinstance(out, tuple) else (out,))
        self.places = [i for i, x in enumerate(self.leaves) if self.moves(x)]
        self.outs = [self.leaves[i] for i in self.places]

    def moves(self, value: object) -> bool:
        """Returns whether a result has a gradient."""
        is_float = isinstance(value, torch.Tensor) and differentiable(value.dtype)
        return is_float and id(value) not in self.ctx._constant

    def results(self) -> Any:
        if self.outs:
            from anyjax.torch.autograd.derivative import given

            operands = [array_of(x) for x in (*self.inputs, *self.outs)]
            rules = self.rules(operands)
            origins = origins_of([*self.inputs, *map(inner, self.outs)])

            def join(*inputs: torch.Tensor) -> list[torch.Tensor]:
                values = given([*map(array_of, inputs), *operands[len(inputs) :]], rules)
                tensors = zip(values, self.outs)
                return [lift(JaxTensor(a, x.dtype, origins)) for a, x in tensors]

            joined = current_trace.trace().whole(join, *self.inputs)
            for place, new in zip(self.places, joined):
                self.leaves[place] = self.renewed(self.leaves[place], new)
        out = self.rebuild(self.leaves)
        return out[0] if self.single else out

    def renewed(self, out: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """Returns a result with its gradient, in the memory that it shares with others."""
        if written := id(out) in self.ctx._dirty:
            out.copy_(new)
        alias = torch.ops.aten.alias(lift(out))  # torch would cut gradients of an argument itself
        if written:
            return alias
        with private.DisableTorchFunction():
            was_written = private.was_written(alias)
        if was_written and any(shares_memory(out, x) for x in self.args):
            mode = current_trace.trace().mode  # whose own gradient stays what it was
            renewed = lift(inner(new))
            mode.picked.twin(mode.detached.same_memory(renewed), mode.detached.same_memory(out))
            return renewed
        if was_written:
            inner(alias)  # else what was written to its memory would take its place later
        put(alias, inner(new))
        return alias

    def rules(self, operands: list[jax.Array]) -> Any:
        """Returns the derivative; what the programs read besides is added to the operands."""
        from anyjax.torch.autograd.derivative import Rules, traced

        spec = lambda x: jax.ShapeDtypeStruct(array_of(x).shape, array_of(x).dtype)
        inputs, outs = [*map(spec, self.inputs)], [*map(spec, self.outs)]
        patterns = [(True,) * len(outs)]
        if not self.ctx._zeros and len(outs) <= MANY:
            patterns = [x for x in product((False, True), repeat=len(outs)) if any(x)]
            patterns.sort(key=sum, reverse=True)

        stack, function = current_trace.trace().backwards, self.function.backward

        def back() -> dict[tuple[bool, ...], Any]:
            if stack.count(function) >= ORDERS:
                raise Unsupported(
                    f"a derivative of order {ORDERS + 1} of {self.function.name}",
                    why="its backward calls it, so that each order has one more",
                    do="give it a jvp, or compute it by operators of torch",
                )
            chosen = lambda pattern: [x for x, on in zip(outs, pattern) if on]
            return {x: traced(partial(self.pull, x), chosen(x), operands) for x in patterns}

        name, push = self.function.name, None
        if self.function.jvp is not None:
            push = attempt(f"jvp of {name}", lambda: traced(self.push, inputs, operands))
        counts = len(inputs), len(outs)
        return Rules(counts, attempt(f"backward of {name}", back), push, name)

    def pull(self, pattern: tuple[bool, ...], *cotangents: jax.Array) -> list[jax.Array]:
        """Returns the gradients of the inputs, by backward; torch's are JAX's conjugates."""
        rest, trace = iter(cotangents), current_trace.trace()
        with trace.inside(), torch.enable_grad(), running(trace, self.function.backward):
            grads = [*map(self.nothing, self.leaves)]
            for place, on in zip(self.places, pattern):
                grads[place] = moving(next(rest).conj(), self.leaves[place]) if on else None
            back = self.function.backward(self.ctx, *self.rebuild(grads))
            back = back if isinstance(back, tuple) else (back,)
            count = len(self.rebuild_args(self.args))
            if len(back) < count:
                raise RuntimeError(
                    f"function {self.function.name}Backward returned an incorrect number of "
                    f"gradients (expected {count}, got {len(back)})"
                )
            by_argument = along(self.rebuild_args(self.args), back)
            pairs = [(x, g) for x, g, on in zip(self.args, by_argument, self.needs) if on]
            return [gradient(x, g) for x, g in pairs]

    def nothing(self, value: object) -> torch.Tensor | None:
        """Returns what stands for no gradient or tangent of a value."""
        return zeros(value) if isinstance(value, torch.Tensor) and self.ctx._zeros else None

    def push(self, *tangents: jax.Array) -> list[jax.Array]:
        """Returns the tangents of the results, by jvp."""
        rest = iter(tangents)
        with current_trace.trace().inside(), torch.enable_grad(), self.ctx.pushing():
            tensors = zip(self.args, self.needs)
            along = [moving(next(rest), x) if on else self.nothing(x) for x, on in tensors]
            out = cast(Callable, self.function.jvp)(self.ctx, *self.rebuild_args(along))
            leaves, _ = self.function.flat(out if isinstance(out, tuple) else (out,))
            outs = [(self.leaves[i], leaves[i]) for i in self.places]
            return [array_of(zeros(x) if t is None else t.to(x.dtype)) for x, t in outs]


@contextlib.contextmanager
def running(trace: Any, backward: Callable) -> Iterator[None]:
    """While the backward of a function runs."""
    trace.backwards.append(backward)
    try:
        yield
    finally:
        trace.backwards.pop()


def shares_memory(one: torch.Tensor, other: object) -> bool:
    """Returns whether functional tensors have one memory."""
    with private.DisableTorchFunction():
        return functional(one) and functional(other) and of_one_memory(one, other)


def attempt(what: str, run: Callable) -> Any:
    """Returns what ``run()`` gives, or the error that is raised once somebody asks for it."""
    trace = current_trace.trace()
    raised, missing = trace.raised, {**trace.missing}
    try:
        out = run()
    except AnyjaxError as error:
        out = error
    except Exception as error:
        out = ForwardFailed(
            f"{what} raises {type(error).__name__}: {error}",
            where=diagnostics.where(error),
            why="it is what this derivative of the model asks for",
            do="let it compute with its tensors alone",
        )
    if trace.missing != missing:
        out = trace.missing.error()
        for name in trace.missing.keys() - missing.keys():
            del trace.missing[name]
    if isinstance(out, Exception):
        trace.raised = raised
        out = out.with_traceback(None)  # whose frames hold tensors of the trace
    return out


def zeros(tensor: torch.Tensor) -> torch.Tensor:
    """Returns zeros for a tensor, whose gradient is unknown or none."""
    array = array_of(tensor)
    return lift(JaxTensor(jax.numpy.zeros(array.shape, array.dtype), tensor.dtype))


def moving(array: jax.Array, tensor: torch.Tensor) -> torch.Tensor:
    """Returns the gradient or tangent of a tensor: a leaf of what is computed from it."""
    leaf = JaxTensor(array, tensor.dtype, GRADIENT)
    hold(leaf, lifted := lift(leaf))
    return lifted


def along(values: Sequence, grads: Sequence) -> Iterator[Any]:
    """Yields the gradients of values, one for each tensor in a list."""
    for value, grad in zip(values, grads):
        if isinstance(value, (list, tuple)):
            yield from along(value, [None] * len(value) if grad is None else grad)
        else:
            yield grad


def gradient(tensor: torch.Tensor, grad: torch.Tensor | None) -> jax.Array:
    """Returns what backward gave for a tensor, as torch takes it: summed where it was broadcast,
    and real where the tensor is.
    """
    if grad is None:
        grad = zeros(tensor)
    if grad.shape != tensor.shape:
        grad = grad.sum_to_size(tensor.shape)
    if grad.is_complex() and not tensor.is_complex():
        grad = grad.real
    return array_of(grad).astype(array_of(tensor).dtype).conj()
