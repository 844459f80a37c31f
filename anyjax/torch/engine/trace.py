"""Dispatch and lowering: every operator that torch dispatches while a trace is active comes here.

Autograd's dispatch keys are switched off, so that composite operators (``linear``, ``layer_norm``,
``scaled_dot_product_attention``) arrive whole. Operators that touch a traced value are lowered,
those on torch tensors alone stay torch (partial evaluation), and whatever is random takes a key.
What has no lowering goes to fallback.py.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import torch

from anyjax.calls.taps import Readings
from anyjax.errors import AnyjaxError, DataDependent, TableError
from anyjax.private_names import Inconclusive
from anyjax.torch.aliasing.no_grad import cut
from anyjax.torch.autograd.tape import Tape, Unrecorded, marked
from anyjax.torch.core import autocast, diagnostics, private, sizes, strides
from anyjax.torch.core.call import Call, call_of
from anyjax.torch.core.keys import Keys
from anyjax.torch.core.mask_limits import Limits
from anyjax.torch.core.precision import UNASKED, are_narrow
from anyjax.torch.core.pytrees import flatten, map_tensors
from anyjax.torch.core.tensor import GRADIENT, JaxTensor, origins_of, value_of
from anyjax.torch.data_dependent import int64
from anyjax.torch.data_dependent.split_of_concat import CUTS, PackedConstants, note
from anyjax.torch.engine.compare_cache import SameMasks
from anyjax.torch.engine.constants import LARGE, constant, outgrown, size_like
from anyjax.torch.engine.fallback import Fallback
from anyjax.torch.engine.generators import Generators

if TYPE_CHECKING:
    from jaxtyping import PyTree

aten = torch.ops.aten

WATCHERS: list[Counter] = []
OVERWRITES = {aten.copy.default, aten.fill.Scalar, aten.fill.Tensor, aten.zero.default}
CONCRETIZATION = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


@dataclass(slots=True)
class Step:
    """One operator on its way through a trace.

    Attributes:
      args, kwargs: as torch dispatched them; ``bound``, where the lowering sees other ones.
      values, operands: what the lowering takes, and the tensors among the arguments.
      key: that of a random operator.
      origins: what the result was computed from.
      follows: whether gradients do, as they do not under ``no_grad``.
    """

    call: Call
    lowering: Callable
    args: tuple
    kwargs: dict[str, Any]
    bound: tuple[tuple, dict[str, Any]]
    values: list[Any]
    operands: list[torch.Tensor]
    key: jax.Array | None
    origins: int = 0
    follows: bool = True


class Trace(private.TorchDispatchMode):
    """One run of torch code over wrapper tensors; see session.py for what is switched on around it.

    Attributes:
      keys: what random operators draw from.
      inputs: names of the inputs, bit ``i + 1`` of ``JaxTensor.origins`` is ``inputs[i]``.
      callback: whether operators that nothing serves run in torch.
      fallback: what serves operators without a lowering.
      same_masks, packed, generators: comparisons, concatenations and generators so far.
      paths: of the submodules by ``id``.
      module_path: of the submodule that runs, empty outside of them.
      place: tells the line that the operator comes from, where torch runs a graph and not code.
      readings: what taps on modules read, None without taps.
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
      precision: of products and convolutions.
      again: makes a trace like this one, with another key, once this one is over.
    """

    again: Callable[[jax.Array | None], contextlib.AbstractContextManager]

    def __init__(self, rng: jax.Array | None, inputs: tuple[str, ...], callback: bool = False):
        super().__init__()
        self.keys, self.inputs = Keys(rng), inputs
        self.callback = callback
        self.precision, self.asks = UNASKED, False
        self.paths: dict[int, str] = {}
        self.module_path = ""
        self.place: Callable[[], str] | None = None
        self.readings: Readings | None = None
        self.state: dict[str, torch.Tensor] = {}
        self.weights: dict[int, torch.Tensor] = {}
        self.unread: set[int] = set()
        self.writing = False
        self.unknown: list[Any] = []
        self.path: Any = None
        self.conditions: list[jax.Array] | None = []
        self.raised: AnyjaxError | None = None
        self.tape: Tape | None = None
        self.autocast = False
        self.generally = False
        self.size_conditions: dict[str, jax.Array] = {}
        self.mask_limits: dict[int, tuple[jax.Array, Limits]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the wrapper that says so imports all of Dynamo

    # Made where a program needs them.
    fallback = cached_property(lambda self: Fallback(self, self.callback))
    same_masks = cached_property(lambda self: SameMasks())
    packed = cached_property(lambda self: PackedConstants())
    generators = cached_property(lambda self: Generators())

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
            if call.strided:
                self.packed.check(args[0])
            return constant(op, call, args, kwargs)
        if str(kwargs.get("device")) == "meta" and private.forward_level() >= 0:
            return op(*map_tensors(strides.to_meta, args), **kwargs)  # only shapes
        if call.like and size_like(args) <= LARGE:  # a constant, like torch.zeros
            return op(strides.to_meta(args[0]), *args[1:], **{**kwargs, "device": "cpu"})
        if call.row is None:
            return self.fallback(op, args, kwargs)
        if self.autocast and call.casts_inside:
            with autocast.switched_on(op):
                return self.fallback(op, args, kwargs)
        try:
            return self.lower(call, call.row.lowering, args, kwargs)
        except AnyjaxError as error:
            self.raised = error
            raise

    def lower(self, call: Call, lowering: Callable, args: tuple, kwargs: dict[str, PyTree]) -> Any:
        """Binds an operator's arguments, computes its result in JAX and wraps that in tensors; then
        the observers look at it.
        """
        step = self._bind(call, lowering, args, kwargs)
        out = self._wrap(step, self._compute(step))
        for observe in observers_of(call):
            out = observe(self, step, out)
        return out

    def _bind(self, call: Call, lowering: Callable, args: tuple, kwargs: dict[str, PyTree]) -> Step:
        """Turns tensors into arrays; a random operator gets a key."""
        bound = strides.rebase(call.op, args, kwargs) if call.strided else (args, kwargs)
        values, operands = call.bind(*bound)
        if self.unread:  # before hidden writes exchange arrays
            read = operands[1:] if call.op in OVERWRITES else operands
            self.unread.difference_update([id(value_of(x)) for x in read])
        key = None
        if call.random:
            key = None if call.inert(values) else self.keys.draw(call.op)
            values.insert(0, key)
        return Step(call, lowering, args, kwargs, bound, values, operands, key)

    def _compute(self, step: Step) -> Any:
        """Calls the lowering, unless another run of the code or the same comparison did before."""
        call, lowering = step.call, step.lowering
        if self.path is not None and not self.path.first:
            lowering = self.path.once(call.op, lowering, step.operands)
        try:
            if call.compares:
                return self.same_masks(call.op, lowering, step.values)
            if self.asks and are_narrow(step.operands):
                with self.precision.for_narrow():
                    return lowering(*step.values)
            return lowering(*step.values)
        except Exception as error:
            explained = self._explained(step, error)
            if explained is error:
                raise
            raise explained from error

    def _explained(self, step: Step, error: Exception) -> Exception:
        """Returns the error of a lowering, with the user's line and what to do."""
        op, operands = step.call.op, step.operands
        if isinstance(error, CONCRETIZATION):
            return self.data_dependent(diagnostics.spoken(op), diagnostics.deciding(op, operands))
        if isinstance(error, Inconclusive):
            return diagnostics.unknown_size(f"{op}: {str(error).splitlines()[0]}")
        if not isinstance(error, (TypeError, ValueError, OverflowError, AttributeError)):
            return error
        if sizes.CLASS in str(error):
            return diagnostics.unknown_size(f"a number in {op}")
        if isinstance(error, (AnyjaxError, AttributeError)):
            return error
        return diagnostics.failed(op, operands, error)

    def _wrap(self, step: Step, out: PyTree) -> Any:
        """Tensors with torch's dtypes and strides, through which gradients come where they do in
        torch.
        """
        call, operands = step.call, step.operands
        step.origins = origins_of(operands)
        step.follows = torch.is_grad_enabled()
        if not step.follows:
            out = cut(call, out, operands, self.writing)
            first_origins = origins_of(operands[:1]) if self.writing else 0
            step.origins = step.origins & ~GRADIENT | first_origins & GRADIENT
        elif call.undifferentiable:
            step.origins &= ~GRADIENT
        if call.writes:
            out = call.write(out, step.args, step.kwargs)
        if call.returns > 1 and len(out) != call.returns:  # torch would read beyond the last
            raise TableError(f"{call.op} has {call.returns} results, its lowering gave {len(out)}")
        return call.wrap(out, operands, step.origins, step.args, step.kwargs)

    def whole(self, function: Callable, *args: Any, **kwargs: Any) -> Any:
        """Returns a function of tensors that computes in JAX, rather than by operators."""
        if self.tape is None or not torch.is_grad_enabled():
            inside = flatten((args, kwargs))[0]
            out = function(*args, **kwargs)
            return marked(out, [x for x in inside if isinstance(x, torch.Tensor)])
        return self.tape.whole(function, args, kwargs)

    @property
    def missing(self) -> bool:
        """Whether there was an operator that nothing serves."""
        return "fallback" in vars(self) and bool(self.fallback.missing)

    def recording(self) -> Tape:
        """Returns the tape; where there is none, the run ends and the next one has one."""
        if self.tape is None:
            reason = Unrecorded()
            if self.path is not None:
                self.path.stop(reason)
            raise reason
        return self.tape

    def over(self) -> None:
        """Lets go of what leads back here: JAX's tracers must not outlive their own trace."""
        self.unknown.clear()
        self.raised = self.tape = None
        if fallback := vars(self).get("fallback"):
            fallback.trace = None

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
        readings, self.readings = self.readings, self.readings and self.readings.nested()
        recorded = len(self.tape or ())
        try:
            yield
        finally:
            del (self.tape or [])[recorded:]
            self.path, self.conditions, self.same_masks = path, conditions, masks
            self.readings = readings


def record(trace: Trace, step: Step, out: PyTree) -> Any:
    """Keeps what autograd would keep; a leaf that is written under no_grad stays one."""
    tape, call = trace.tape, step.call
    if not step.origins & GRADIENT or (tape is None and step.follows):
        return out
    first, writing = step.operands[0], trace.writing
    if not step.follows and getattr(first, "holder", None) and first.shape == out.shape:
        out.holder, out.retained = first.holder, first.retained
        if tape is not None:
            tape.leaves.append(out)
        return out
    if tape is None:
        return out

    def again(args, kwargs):
        values, operands = call.bind(args, kwargs)
        narrow = trace.asks and are_narrow(operands)
        with trace.precision.for_narrow() if narrow else contextlib.nullcontext():
            out = step.lowering(*([step.key] if call.random else []), *values)
        out = out if step.follows else cut(call, out, operands, writing)
        return out[0] if call.writes else out

    tape.operator(again, step.bound, step.operands, out)
    return out


def check_integers(trace: Trace, step: Step, out: PyTree) -> Any:
    """Follows how large integers may be."""
    int64.follow(trace.conditions, step.call, step.args, step.kwargs, step.values, out)
    return out


def note_parts(trace: Trace, step: Step, out: PyTree) -> Any:
    """Keeps what a concatenation was made of."""
    note(out, *step.args, **step.kwargs)
    return out


def take_apart(trace: Trace, step: Step, out: PyTree) -> Any:
    """Gives back the parts of a concatenation."""
    if getattr(step.args[0], "parts", None) and not trace.writing:
        return trace.packed.taken_apart(step.call.op, step.args, step.kwargs, out)
    return out


class Observer(NamedTuple):
    """``observe(trace, step, out)`` gives what takes the place of an operator's result; it sees
    these ``ops``, None for all.
    """

    observe: Callable[[Trace, Step, Any], Any]
    ops: Container[Any] | None
    why: str


OBSERVERS = (
    Observer(record, None, "torch's autograd is off, and code may ask for gradients"),
    Observer(check_integers, None, "JAX has 32 bits where torch has 64, and wraps in silence"),
    Observer(note_parts, {aten.cat.default}, "constants beside traced values stay constants"),
    Observer(take_apart, CUTS, "where they are cut out again, a shape may come from them"),
)


@lru_cache(None)
def observers_of(call: Call) -> tuple[Callable[[Trace, Step, Any], Any], ...]:
    """Returns the observers of an operator, in their order."""
    return tuple(o.observe for o in OBSERVERS if o.ops is None or call.op in o.ops)


@contextlib.contextmanager
def watching() -> Iterator[Counter]:
    """Counts the operators that are dispatched by traces in here."""
    seen: Counter = Counter()
    WATCHERS.append(seen)
    try:
        yield seen
    finally:
        WATCHERS.remove(seen)
