"""One call of an operator on its way through JAX: bind, compute, wrap, check.

Every call goes this way: of ``from_torch`` and ``torch.compile`` inside of a trace, of tensors on
JAX and of ``interop`` inside of a program of its own. What a trace adds has a value here that means
nothing of it is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import torch

from anyjax.errors import AnyjaxError, DataDependent, TableError
from anyjax.private_names import Inconclusive
from anyjax.torch.aliasing.no_grad import cut
from anyjax.torch.core import diagnostics, private, sizes, strides
from anyjax.torch.core.call import Call
from anyjax.torch.core.lengths import Lengths
from anyjax.torch.core.precision import UNASKED, Precision, are_narrow
from anyjax.torch.core.tensor import GRADIENT, JaxTensor, origins_of
from anyjax.torch.data_dependent import int64
from anyjax.typing import PyTree

aten = torch.ops.aten

OVERWRITES = {aten.copy.default, aten.fill.Scalar, aten.fill.Tensor, aten.zero.default}
CONCRETIZATION = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
FLOATS = {torch.float32, torch.float16, torch.bfloat16, torch.float64}  # no integers to follow
EXPLAINED = (AnyjaxError, AttributeError, jax.errors.UnexpectedTracerError)


@dataclass(slots=True)
class Step:
    """One operator on its way.

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
    origins: int
    follows: bool


class Run:
    """Torch code that runs, as the lowering of its operators, and lowerings themselves, see it.

    Attributes:
      make: the class of the tensors.
      inputs: names of the inputs, bit ``i + 1`` of ``JaxTensor.origins`` is ``inputs[i]``.
      precision: of products and convolutions; ``asks`` whether it is another one than JAX's own.
      place: tells the line that the operator comes from, where torch runs a graph and not code.
      lengths: sizes that values decide; ``chosen``, the places of masks by the id of their array.
      conditions: those that have to hold, None where they mean nothing.
      steps: whether a sum of integers with a small number is checked, too.
      stepped: whether one was not, of integers that may be near the end of 32 bits.
      unread: ids of the state's arrays that nothing was computed from.
      writing: whether an in-place call under no_grad goes on.
      target: what an in-place call writes to, where that is not contiguous.
      path: the answers to conditions that only the program knows, None where there are none.
      same_masks: comparisons so far, None where each is computed.
      is_functional: whether operators never write.
      differentiates: whether JAX may differentiate the program.
      inside: makes the context of code that JAX traces on its own.
      follows: tells whether gradients follow operators now.
      draw: returns a key for a random operator.
      above, below: call a function of tensors, which may write to them; lower its operators as they
        come.
      missing_op: serves an operator that there is no other way for.
      python: runs the Python code of somebody's own operator.
    """

    make: type[JaxTensor] = JaxTensor
    inputs: tuple[str, ...] = ()
    precision: Precision = UNASKED
    asks = False
    place: Callable[[], str] | None = None
    lengths: Lengths
    chosen: dict[Any, tuple[jax.Array, Any]]
    conditions: list[jax.Array] | None = None
    steps = stepped = False
    unread: Any = frozenset()
    writing = False
    target: torch.Tensor | None = None
    path: Any = None
    same_masks: Any = None
    is_functional = differentiates = True
    inside: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext
    follows = staticmethod(torch.is_grad_enabled)
    draw: Callable[..., Any]
    above: Callable[..., Any]
    below: Callable[..., Any]
    missing_op: Callable[..., Any]
    python: Callable[..., Any]

    @cached_property
    def decomposing(self) -> set[private.OpOverload]:
        """Operators that the fallback is about to serve."""
        return set()

    def lower(self, call: Call, args: tuple, kwargs: dict[str, PyTree]) -> Any:
        """Binds an operator's arguments, computes its result in JAX, wraps that in tensors and
        checks it.
        """
        assert call.row is not None
        bound = strides.rebase(call.op, args, kwargs) if call.strided else (args, kwargs)
        values, operands = call.bind(*bound)
        if self.unread:  # before hidden writes exchange arrays
            for x in operands[1:] if call.op in OVERWRITES else operands:
                self.unread.discard(id(x.array if isinstance(x, JaxTensor) else x))
        key = None
        if call.random:
            key = None if call.inert(values) else self.draw(call.op)
            values.insert(0, key)
        origins, follows = 0, self.follows()
        for x in operands:
            origins |= getattr(x, "origins", 0)
        step = Step(
            call, call.row.lowering, args, kwargs, bound, values, operands, key, origins, follows
        )
        try:
            out = self._compute(step)
        except Exception as error:
            explained = self._explained(step, error)
            if explained is error:
                raise
            raise explained from error
        if not follows:
            out = cut(call, out, operands, self.writing)
            first_origins = origins_of(operands[:1]) if self.writing else 0
            step.origins = origins & ~GRADIENT | first_origins & GRADIENT
        elif call.undifferentiable:
            step.origins = origins & ~GRADIENT
        if call.writes:
            out = call.write(out, args, kwargs)
        if call.returns > 1 and len(out) != call.returns:  # torch would read beyond the last
            raise TableError(f"{call.op} has {call.returns} results, its lowering gave {len(out)}")
        out = call.wrap(out, operands, step.origins, args, kwargs, make=self.make)
        if self.target is not None:
            out = strides.as_target(out, self.target)
        may_be_integers = not isinstance(out, JaxTensor) or out.dtype not in FLOATS
        if may_be_integers and int64.follow(
            self.conditions, call, args, kwargs, values, out, self.steps
        ):
            self.stepped = True
        return self.noted(step, out)

    def noted(self, step: Step, out: PyTree) -> Any:
        """Returns what takes the place of an operator's result."""
        return out

    def _compute(self, step: Step) -> Any:
        """Calls the lowering, unless another run of the code or the same comparison did before."""
        lowering = step.lowering
        if self.path is not None and not self.path.first:
            lowering = self.path.once(step.call.op, lowering, step.operands)
        if step.call.compares and self.same_masks is not None:
            return self.same_masks(step.call.op, lowering, step.values)
        if self.asks and are_narrow(step.operands):
            with self.precision.for_narrow():
                return lowering(*step.values)
        return lowering(*step.values)

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
        if isinstance(error, EXPLAINED):
            return error
        return diagnostics.failed(op, operands, error)

    def data_dependent(
        self, what: str, operands: Iterable[object], error=None, place: str = ""
    ) -> DataDependent:
        """The error for a value that Python code or a shape needs while it is traced."""
        names = self.named(origins_of(operands))
        return diagnostics.data_dependent(what, names, place or diagnostics.where(error))

    def named(self, origins: int) -> tuple[str, ...]:
        """Returns the names of inputs."""
        return tuple(name for i, name in enumerate(self.inputs) if origins >> i & 2)
