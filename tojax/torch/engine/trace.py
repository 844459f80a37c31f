"""Dispatch and lowering: every operator that torch dispatches while a trace is active comes here.

Autograd's dispatch keys are switched off, so that composite operators (``linear``, ``layer_norm``,
``scaled_dot_product_attention``) arrive whole. Operators that touch a traced value are lowered,
those on torch tensors alone stay torch (partial evaluation), and whatever is random takes a key.
What has no lowering goes to fallback.py.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import torch

from tojax.errors import DataDependent, TojaxError
from tojax.known import Inconclusive
from tojax.torch.aliasing.no_grad import cut
from tojax.torch.autograd.tape import Tape, Unrecorded, marked
from tojax.torch.core import autocast, diagnostics, private, sizes, strides
from tojax.torch.core.call import Call, call_of
from tojax.torch.core.keys import Keys
from tojax.torch.core.lifting import CONSTANTS, HUGE
from tojax.torch.core.pytrees import flatten, map_tensors
from tojax.torch.core.tensor import GRADIENT, JaxTensor, origins_of, value_of
from tojax.torch.data_dependent import integer_overflow
from tojax.torch.data_dependent.packed_constants import CUTS, PackedConstants, note
from tojax.torch.data_dependent.same_mask import SameMasks
from tojax.torch.engine.fallback import Fallback
from tojax.torch.engine.generators import Generators

aten = torch.ops.aten

WATCHERS: list[Counter] = []
LARGE = 1 << 16  # elements; larger results of factories are computed in the program, not stored;
# so are ranges beyond HUGE, and what elementwise operators make of smaller constants, as masks are
UNINITIALIZED = {aten.empty, aten.empty_like, aten.empty_strided, aten.empty_permuted}
UNINITIALIZED |= {aten.new_empty, aten.new_empty_strided}  # as constants, zeros: not old memory
OVERWRITES = {aten.copy.default, aten.fill.Scalar, aten.fill.Tensor, aten.zero.default}
LIKE = {aten.zeros_like, aten.ones_like, aten.full_like}
LIKE |= {aten.new_zeros, aten.new_ones, aten.new_full}  # take only shape and dtype of a tensor
CONCRETIZATION = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


class Trace(private.TorchDispatchMode):
    """One run of torch code over wrapper tensors; see session.py for what is switched on around it.

    Attributes:
      keys: what random operators draw from.
      inputs: names of the inputs, bit ``i + 1`` of ``JaxTensor.origins`` is ``inputs[i]``.
      fallback: what serves operators without a lowering.
      state: what the traced code may write to, by name.
      weights: those of the trace by the ``id`` of the module's own, which code may know besides.
      unread: ids of the state's arrays that nothing was computed from.
      writing: whether an in-place call under no_grad goes on.
      unknown: what stands for sizes, or rows of a number, that only the program knows.
      path: the answers to conditions that only the program knows, None where there are none.
      conditions: those that have to hold, None where they mean nothing.
      raised: the last error of ours; TorchScript hands on nothing but its text.
      tape: what was computed, None until code asks for gradients itself.
      autocast: whether the torch function that goes on was called under autocast.
      again: makes a trace like this one, with another key, once this one is over.
    """

    again: Callable[[jax.Array | None], contextlib.AbstractContextManager]

    def __init__(self, rng: jax.Array | None, inputs: tuple[str, ...], callback: bool = False):
        super().__init__()
        self.keys, self.inputs = Keys(rng), inputs
        self.fallback = Fallback(self, callback)
        self.same_masks, self.packed = SameMasks(), PackedConstants()
        self.generators = Generators()
        self.state: dict[str, torch.Tensor] = {}
        self.weights: dict[int, torch.Tensor] = {}
        self.unread: set[int] = set()
        self.writing = False
        self.unknown: list[Any] = []
        self.path: Any = None
        self.conditions: list[jax.Array] | None = []
        self.raised: TojaxError | None = None
        self.tape: Tape | None = None
        self.autocast = False
        self.generally = False
        self.size_conditions: dict[str, jax.Array] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the wrapper that says so imports all of Dynamo

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        call = call_of(op)
        for watcher in WATCHERS:
            watcher[op] += 1
        if op is aten.unfold_backward.default:
            strides.check_write_through_unfold(*args[1:])
        traced = JaxTensor in types or sizes.symbolic(args)
        if call.random and (drawn := self.generators.draw(op, args, kwargs)) is not NotImplemented:
            return drawn
        if not traced and not call.random and not outgrown(call, args):
            if self.packed.handed and op in strides.STRIDED:
                self.packed.check(args[0])
            return constant(op, call, args, kwargs)
        if str(kwargs.get("device")) == "meta" and private.forward_level() >= 0:
            return op(*map_tensors(strides.to_meta, args), **kwargs)  # only shapes
        if op.overloadpacket in LIKE and size_like(args) <= LARGE:  # a constant, like torch.zeros
            return op(strides.to_meta(args[0]), *args[1:], **{**kwargs, "device": "cpu"})
        if call.row is None:
            return self.fallback(op, args, kwargs)
        if self.autocast and call.casts_inside:
            with autocast.switched_on(op):
                return self.fallback(op, args, kwargs)
        try:
            return self.lower(call, call.row.lowering, args, kwargs)
        except TojaxError as error:
            self.raised = error
            raise

    def lower(self, call: Call, lowering, args, kwargs):
        """Calls the lowering with JAX arrays, wraps what it returns."""
        given = (args, kwargs)
        if call.op in strides.STRIDED:
            given = strides.rebase(call.op, args, kwargs)
        values, operands = call.bind(*given)
        if self.unread:
            read = operands[1:] if call.op in OVERWRITES else operands
            self.unread.difference_update(id(value_of(x)) for x in read)
        if call.random:
            values.insert(0, None if call.inert(values) else self.keys.draw(call.op))
        once = lowering
        if self.path is not None:
            once = self.path.once(call.op, lowering, operands)
        try:
            out = self.same_masks(call.op, once, values)
        except CONCRETIZATION as error:
            deciding = diagnostics.deciding(call.op, operands)
            raise self.data_dependent(str(call.op), deciding) from error
        except Inconclusive as error:
            raise diagnostics.unknown_size(f"{call.op}: {str(error).splitlines()[0]}") from error
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            if sizes.CLASS in str(error):
                raise diagnostics.unknown_size(f"a number in {call.op}") from error
            if isinstance(error, (TojaxError, AttributeError)):
                raise
            raise diagnostics.failed(call.op, operands, error) from error
        origins = origins_of(operands)
        if follows := torch.is_grad_enabled():
            origins = origins & ~GRADIENT if call.undifferentiable else origins
        else:
            out = cut(call, out, operands, self.writing)
            kept = origins_of(operands[:1]) if self.writing else 0
            origins = origins & ~GRADIENT | kept & GRADIENT
        if call.writes:
            out = call.write(out, args, kwargs)
        out = call.wrap(out, operands, origins, args, kwargs)
        if origins & GRADIENT and (self.tape is not None or not follows):
            key = values[0] if call.random else None
            self.note(call, lowering, key, follows, given, operands, out)
        integer_overflow.follow(self, call, args, kwargs, values, out)
        if call.op is aten.cat.default:
            note(out, *args, **kwargs)
        elif call.op in CUTS and getattr(args[0], "parts", None) and not self.writing:
            out = self.packed.taken_apart(call.op, args, kwargs, out)
        return out

    def note(self, call: Call, lowering, key, follows: bool, given, operands, out) -> None:
        """What autograd would keep of a call; a leaf that is written under no_grad stays one."""
        first, writing = operands[0], self.writing
        if not follows and getattr(first, "holder", None) and first.shape == out.shape:
            out.holder, out.retained = first.holder, first.retained
            if self.tape is not None:
                self.tape.held.append(out)
            return
        if self.tape is None:
            return

        def again(args, kwargs):
            values, operands = call.bind(args, kwargs)
            out = lowering(*([key] if call.random else []), *values)
            out = out if follows else cut(call, out, operands, writing)
            return out[0] if call.writes else out

        self.tape.operator(again, given, operands, out)

    def whole(self, function: Callable, *args: Any, **kwargs: Any) -> Any:
        """A function of tensors that computes in JAX, rather than by operators."""
        if self.tape is None or not torch.is_grad_enabled():
            inside = flatten((args, kwargs))[0]
            out = function(*args, **kwargs)
            return marked(out, [x for x in inside if isinstance(x, torch.Tensor)])
        return self.tape.whole(function, args, kwargs)

    def recording(self) -> Tape:
        """The tape; where there is none, the run ends and the next one has one."""
        if self.tape is None:
            reason = Unrecorded()
            if self.path is not None:
                self.path.stop(reason)
            raise reason
        return self.tape

    def over(self) -> None:
        """Lets go of what leads back here: JAX's tracers must not outlive their own trace."""
        self.unknown.clear()
        self.fallback.trace = self.raised = None

    def size_condition(self, condition: sizes.Condition, text: str) -> bool:
        """The answer to a condition on symbolic sizes, the same whenever it is asked."""
        if self.generally and condition.general is not None:
            return condition.general
        error = diagnostics.unknown_size(f"whether {text}")
        if self.path is None:
            raise error
        if condition.key not in self.size_conditions:
            self.size_conditions[condition.key] = condition.holds()
        return self.path.answer(self.size_conditions[condition.key], error)

    def size_check(self, condition: sizes.Condition, opposite: bool) -> None:
        """Floats of the result are NaN for sizes that do not pass."""
        if not self.generally and self.conditions is not None:
            self.conditions.append(condition.holds() != opposite)

    def data_dependent(self, what: str, operands, error=None, place: str = "") -> DataDependent:
        """The error for a value that Python code or a shape needs while it is traced."""
        origins = origins_of(operands)
        names = tuple(name for i, name in enumerate(self.inputs) if origins >> i & 2)
        return diagnostics.data_dependent(what, names, place or diagnostics.where(error))

    @contextlib.contextmanager
    def drawing(self, rng: jax.Array | None) -> Iterator[None]:
        """In code that JAX traces on its own, which draws from a key of its own."""
        with self.keys.of(rng), self.inside():
            yield

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """In code that JAX traces on its own, whose conditions mean nothing outside of it."""
        path, self.path = self.path, None
        conditions, self.conditions = self.conditions, None
        masks, self.same_masks = self.same_masks, SameMasks()
        try:
            yield
        finally:
            self.path, self.conditions, self.same_masks = path, conditions, masks


def constant(op, call: Call, args, kwargs):
    """torch's own result, of constants."""
    if call.signature.writes:  # by a decomposition, to a constant that may be known already
        CONSTANTS.clear()
    if op is aten.view.default and not args[0].is_contiguous():
        op = aten.reshape.default  # a write, undone through a view: any order
    with private.DisableTorchFunction():  # dispatched from C++, as vmap does
        out = op(*args, **kwargs)
        return out.zero_() if op.overloadpacket in UNINITIALIZED else out


def outgrown(call: Call, args) -> bool:
    """Whether an operator of constants makes one that is large and larger than what it is made of:
    the program computes it.
    """
    if call.factory:
        return call.size(args) > LARGE or (call.range and length(*args) > HUGE)
    if not call.elementwise or call.row is None:
        return False
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    if math.prod(x.numel() for x in tensors) <= HUGE:  # most: quickly told
        return False
    count = math.prod(torch.broadcast_shapes(*(x.shape for x in tensors)))
    return count > HUGE and max(map(memory, tensors)) < count


def length(first: float, end: float | None = None, step: float = 1) -> float:
    """Of a range."""
    return first if end is None else (end - first) / step


def memory(x: torch.Tensor) -> int:
    """Elements that a constant has in memory; an expanded one has fewer than its shape."""
    return math.prod(n for n, stride in zip(x.shape, x.stride()) if stride)


def size_like(args) -> int:
    """How many elements a factory makes that takes its dtype, or its shape too, from a tensor."""
    own = len(args) > 1 and isinstance(args[1], (list, tuple))
    shape = args[1] if own else args[0].shape
    return LARGE + 1 if sizes.symbolic(shape) else sizes.count(shape)


@contextlib.contextmanager
def watching() -> Iterator[Counter]:
    """Counts the operators that are dispatched by traces in here."""
    seen: Counter = Counter()
    WATCHERS.append(seen)
    try:
        yield seen
    finally:
        WATCHERS.remove(seen)
