"""Dispatch: every operator that torch dispatches while a trace is active comes here.

Autograd's dispatch keys are switched off, so that composite operators (``linear``, ``layer_norm``,
``scaled_dot_product_attention``) arrive whole. Operators that touch a traced value are lowered,
those on torch tensors alone stay torch (partial evaluation), and whatever is random takes a key.
lowering/ has how.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Callable, Container, Iterator
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import jax
import torch

from anyjax.calls.taps import Readings
from anyjax.errors import AnyjaxError, DataDependent
from anyjax.torch.aliasing.no_grad import cut
from anyjax.torch.autograd.tape import NeedsTape, Tape, marked
from anyjax.torch.core import autocast, diagnostics, heads, private, sizes, strides
from anyjax.torch.core.call import Call, call_of
from anyjax.torch.core.keys import Keys
from anyjax.torch.core.lengths import Lengths
from anyjax.torch.core.lifting import lift, lowered
from anyjax.torch.core.mask_limits import Limits
from anyjax.torch.core.precision import are_narrow
from anyjax.torch.core.pytrees import flatten, map_tensors
from anyjax.torch.core.tensor import GRADIENT, CountedTensor, JaxTensor
from anyjax.torch.data_dependent import builtin
from anyjax.torch.data_dependent.int64 import INTEGERS
from anyjax.torch.data_dependent.sizes_of_values import note as note_integer
from anyjax.torch.data_dependent.split_of_concat import CUTS, PackedConstants, note
from anyjax.torch.engine.callback import call_torch
from anyjax.torch.engine.compare_cache import SameMasks
from anyjax.torch.engine.constants import LARGE, constant, outgrown, size_like
from anyjax.torch.engine.generators import TORCHS, Generators
from anyjax.torch.engine.missing import Missing
from anyjax.torch.lowering.fallback import fallback
from anyjax.torch.lowering.run import Run, Step
from anyjax.typing import PyTree

aten = torch.ops.aten

WATCHERS: list[Counter] = []


class Trace(Run, private.TorchDispatchMode):
    """A run over wrapper tensors; see session.py for what is switched on around it.

    Attributes:
      keys: what random operators draw from.
      torch_state: that of torch's default generator when the trace began.
      callback: whether operators that nothing serves run in torch.
      missing: operators that nothing serves.
      same_masks, packed, generators: comparisons, concatenations and generators so far.
      paths: of the submodules by ``id``.
      module_path: of the submodule that runs, empty outside of them.
      readings: what taps on modules read, None without taps.
      state: what the traced code may write to, by name.
      weights: those of the trace by the ``id`` of the module's own, which code may know besides.
      unknown: what stands for sizes of groups that only the program knows.
      raised: the last error of ours; TorchScript hands on nothing but its text.
      tape: what was computed, None until code asks for gradients itself.
      autocast: whether the torch function that goes on was called under autocast.
      mode: sees the calls above this trace.
      notes: what earlier runs of the code have found out about it.
      within: whether a branch or a loop's body runs.
      backwards: those that run, of torch.autograd.Function.
    """

    def __init__(self, rng: jax.Array | None, inputs: tuple[str, ...], callback: bool = False):
        super().__init__()
        self.keys, self.inputs = Keys(rng), inputs
        self.callback, self.missing = callback, Missing()
        self.torch_state = TORCHS.get_state()
        self.paths: dict[int, str] = {}
        self.module_path = ""
        self.mode: Any = None
        self.readings: Readings | None = None
        self.state: dict[str, torch.Tensor] = {}
        self.weights: dict[int, torch.Tensor] = {}
        self.unread: set[int] = set()
        self.unknown: list[Any] = []
        self.conditions: list[jax.Array] | None = []
        self.raised: AnyjaxError | None = None
        self.tape: Tape | None = None
        self.leaves: dict[int, weakref.ref] = {}
        self.autocast = False
        self.generally = False
        self.size_conditions: dict[str, jax.Array] = {}
        self.mask_limits: dict[int, tuple[jax.Array, Limits]] = {}
        self.heads: dict[int, heads.Head] = {}
        self.lengths = Lengths()
        self.chosen = {}
        self.notes: dict[Any, Any] = {}
        self.within = False
        self.backwards: list[Any] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the wrapper that says so imports all of Dynamo

    # Made where a program needs them.
    same_masks = cached_property(lambda self: SameMasks())
    packed = cached_property(lambda self: PackedConstants())
    generators = cached_property(lambda self: Generators(self.keys, self.torch_state))

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        call = call_of(op)
        for watcher in WATCHERS:
            watcher[op] += 1
        if op is aten.unfold_backward.default:
            strides.check_write_through_unfold(*args[1:])
        counts = CountedTensor in types
        if counts or self.lengths or (call.chooses and JaxTensor in types):
            out = self._of_count(op, args, kwargs, counts)
            if out is not NotImplemented:
                return out
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
            return fallback(self, op, args, kwargs)
        if self.autocast and call.casts_inside:
            with autocast.switched_on(op):
                return fallback(self, op, args, kwargs)
        try:
            return self.lower(call, args, kwargs)
        except AnyjaxError as error:
            self.raised = error
            raise

    def _of_count(self, op, args, kwargs, counts):
        from anyjax.torch.sizes import serve  # for few programs

        try:
            return serve.serve(self, op, args, kwargs, counts)
        except AnyjaxError as error:
            self.raised = error
            raise

    def draw(self, op: object) -> jax.Array:
        """Returns the next of the trace's keys."""
        return self.keys.draw(op)

    def noted(self, step: Step, out: PyTree) -> Any:
        """Keeps what is asked of the result later; see OBSERVERS."""
        if self.tape is not None and step.origins & GRADIENT:
            record(self, step, out)
        if type(out) is JaxTensor and out.dtype in INTEGERS:
            note_integer(step.call, step.args, out)
        for observe in observers_of(step.call):
            out = observe(self, step, out)
        if self.heads:
            heads.follow(self.heads, step, out)
        return out

    def whole(self, function: Callable, *args: Any, **kwargs: Any) -> Any:
        """Returns a function of tensors that computes in JAX, rather than by operators."""
        if self.tape is None or not torch.is_grad_enabled():
            inside = flatten((args, kwargs))[0]
            out = function(*args, **kwargs)
            return marked(out, [x for x in inside if isinstance(x, torch.Tensor)])
        return self.tape.whole(function, args, kwargs)

    def above(self, function: Callable, args: tuple, kwargs: dict[str, PyTree]) -> Any:
        """Back above functionalization, from inside the handler."""
        excluded = private.is_excluded(private.FUNCTIONALIZE)
        private.set_excluded(private.FUNCTIONALIZE, False)
        try:
            with self:
                return lowered(function(*lift(args), **lift(kwargs)))
        finally:
            private.set_excluded(private.FUNCTIONALIZE, excluded)

    def below(self, function: Callable, args: tuple, kwargs: dict[str, PyTree]) -> Any:
        """Returns a function of the tensors inside of functional ones."""
        with self:
            return function(*args, **kwargs)

    def python(self, op, function, args, kwargs):
        """Runs the Python code of somebody's own operator; where that reads memory, in torch."""

        def served(*args, **kwargs):
            with self.mode:
                return function(*args, **kwargs)

        try:
            return self.above(served, args, kwargs)
        except (DataDependent, RuntimeError) as error:
            if not (isinstance(error, DataDependent) or diagnostics.reads_memory(error)):
                raise
        return self.in_torch(op, args, kwargs)

    def in_torch(self, op, args, kwargs):
        """Runs an operator in torch, as a callback of the program."""
        self.unread.clear()
        key = self.keys.draw(op) if call_of(op).random else None
        return self.whole(call_torch, op, args, kwargs, key)

    def missing_op(self, op, args, kwargs):
        """Notes an operator that nothing serves, or calls torch."""
        return self.missing.note(self, op, args, kwargs)

    def recording(self) -> Tape:
        """Returns the tape; where there is none, the run ends and the next one has one."""
        if self.tape is None:
            reason = NeedsTape()
            if self.path is not None:
                self.path.stop(reason)
            raise reason
        return self.tape

    def over(self) -> None:
        """Lets go of what leads back here: JAX's tracers must not outlive their own trace."""
        self.unknown.clear()
        self.heads.clear()
        self.mask_limits.clear()
        self.leaves.clear()
        self.chosen.clear()
        self.lengths.clear()
        self.lengths.numbers.clear()
        self.raised = self.tape = self.mode = None

    def size_condition(self, condition: sizes.Condition, text: str) -> bool:
        """The answer to a condition on symbolic sizes, the same whenever it is asked."""
        if self.generally and condition.general is not None:
            return condition.general
        error = diagnostics.unknown_size(f"whether {text}")
        if self.path is None:
            raise error
        self.ask_function()
        if condition.key not in self.size_conditions:
            self.size_conditions[condition.key] = condition.holds()
        return self.path.answer(self.size_conditions[condition.key], error)

    def ask_function(self) -> None:
        """Ends the run where another function in the place of Python's needs no number."""
        if self.path is not None and (function := builtin.needed()):
            self.path.stop(function)

    def size_check(self, condition: sizes.Condition, opposite: bool) -> None:
        """Floats of the result are NaN for sizes that do not pass."""
        if not self.generally and self.conditions is not None:
            self.conditions.append(condition.holds() != opposite)

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
        masks, self.same_masks, outputs, self.heads = self.same_masks, SameMasks(), self.heads, {}
        readings, self.readings = self.readings, self.readings and self.readings.nested()
        chosen, self.chosen = self.chosen, dict(self.chosen)
        recorded = len(self.tape or ())
        try:
            yield
        finally:
            del (self.tape or [])[recorded:]
            self.path, self.conditions, self.same_masks = path, conditions, masks
            self.readings, self.heads, self.chosen = readings, outputs, chosen


def record(trace: Trace, step: Step, out: PyTree) -> None:
    """Keeps what autograd would keep."""
    call, writing = step.call, trace.writing

    def again(args, kwargs):
        values, operands = call.bind(args, kwargs)
        narrow = trace.asks and are_narrow(operands)
        with trace.precision.for_narrow() if narrow else contextlib.nullcontext():
            out = step.lowering(*([step.key] if call.random else []), *values)
        out = out if step.follows else cut(call, out, operands, writing)
        return out[0] if call.writes else out

    assert trace.tape is not None
    trace.tape.operator(again, step.bound, step.operands, out)


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
    """``observe(trace, step, out)`` gives what takes the place of the result of these ``ops``."""

    observe: Callable[[Trace, Step, Any], Any]
    ops: Container[Any]
    why: str


OBSERVERS = (
    Observer(note_parts, {aten.cat.default}, "constants beside traced values stay constants"),
    Observer(take_apart, CUTS, "where they are cut out again, a shape may come from them"),
    Observer(heads.begin, {aten.linear.default}, "losses take the rows of a head, not its outputs"),
)


@lru_cache(None)
def observers_of(call: Call) -> tuple[Callable[[Trace, Step, Any], Any], ...]:
    """Returns the observers of an operator, in their order."""
    return tuple(o.observe for o in OBSERVERS if call.op in o.ops)


@contextlib.contextmanager
def watching() -> Iterator[Counter]:
    """Counts the operators that are dispatched by traces in here."""
    seen: Counter = Counter()
    WATCHERS.append(seen)
    try:
        yield seen
    finally:
        WATCHERS.remove(seen)
