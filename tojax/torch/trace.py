"""The engine: torch code runs once over wrapper tensors, each operator is lowered as it is
dispatched.

torch's C++ functionalization, switched on around the call, turns views and in-place writes into
functional operators. Autograd's dispatch keys are switched off, so that composite operators
(``linear``, ``layer_norm``, ``scaled_dot_product_attention``) arrive whole. A dispatch mode then
sees every operator: those that touch a traced value are lowered, those on torch tensors alone stay
torch (partial evaluation), and whatever is random takes a key.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch._decomp import decomposition_table
from torch._library.custom_ops import OPDEFS
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from tojax.errors import DataDependent, MissingOps, MissingRng, TojaxError
from tojax.torch import autocast, blame, draws, strides, weights
from tojax.torch.callback import call_torch
from tojax.torch.calls import CONSTANTS, Call, call_of
from tojax.torch.compared import Compared
from tojax.torch.constants import ConstantsMode
from tojax.torch.custom import custom_gradients
from tojax.torch.dtypes import to_jax
from tojax.torch.gradients import cut
from tojax.torch.patches import patched, uncompiled
from tojax.torch.pieces import CUTS, Pieces, note
from tojax.torch.tensor import JaxTensor, inner, value_of
from tojax.torch.ways import Ways

FUNCTIONALIZE = torch._C.DispatchKey.Functionalize
LOCK = threading.RLock()  # torch's compiling flag and a module's attributes are process-wide
_THREAD = threading.local()
WATCHERS: list[Counter] = []
LARGE = (
    1 << 16
)  # elements; a factory's larger results are computed in the program, not stored in it
aten = torch.ops.aten
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


class Write(Exception):
    """A decomposition writes to a tensor, so it has to run above functionalization."""


class Trace(TorchDispatchMode):
    """Lowers what is dispatched while it is active; see the module's docstring.

    Args:
      rng: the key that random operators draw from, None if there is none.
      inputs: names of the inputs, bit ``i`` of ``JaxTensor.origins`` is ``inputs[i]``.
      callback: whether an operator without a lowering runs in torch.
    """

    def __init__(self, rng: jax.Array | None, inputs: tuple[str, ...], callback: bool = False):
        super().__init__()
        self.callback = callback
        self.rng, self.inputs, self.draws = rng, inputs, 0
        self.missing: dict[str, tuple[Any, str]] = {}
        self.decomposing: set[Any] = set()
        self.state: dict[str, torch.Tensor] = {}  # what the traced code may write to
        self.unread: set[int] = set()  # ids of the state's arrays that nothing was computed from
        self.writing = False  # inside an in-place call under no_grad
        self.pieces = Pieces()
        self.sizes: list[Any] = []  # what tolist and masks gave of traced values
        self.compared = Compared()
        self.raised: TojaxError | None = None  # TorchScript hands on nothing but its text
        self.autocast = False  # whether the torch function that goes on was called under autocast
        self.ways: Ways | None = None  # answers conditions that only the program knows
        self.conditions: list[jax.Array] | None = []  # that have to hold

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
        traced = JaxTensor in types
        if not traced and not call.random and not (call.factory and call.size(args) > LARGE):
            if call.signature.writes:  # by a decomposition, to a constant that may be known already
                CONSTANTS.clear()
            if self.pieces.handed and op in strides.STRIDED:
                self.pieces.check(args[0])
            if op is aten.view.default and not args[0].is_contiguous():
                op = aten.reshape.default  # a write, undone through a view: any order
            with torch._C.DisableTorchFunction():  # dispatched from C++, as vmap does
                out = op(*args, **kwargs)
            return out.zero_() if op.overloadpacket in UNINITIALIZED else out
        if forward_ad._current_level >= 0 and str(kwargs.get("device")) == "meta":
            return op(*tree_map_only(torch.Tensor, strides.to_meta, args), **kwargs)  # only shapes
        if op.overloadpacket in LIKE and size_like(args) <= LARGE:  # a constant, like torch.zeros
            return op(strides.to_meta(args[0]), *args[1:], **{**kwargs, "device": "cpu"})
        if call.row is None:
            return self.without_row(op, args, kwargs)
        if self.autocast and call.casts_inside:
            with autocast.switched_on(op):
                return self.without_row(op, args, kwargs)
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
            values.insert(0, None if call.inert(values) else self.key(call))
        if self.ways is not None:
            lowering = self.ways.once(call.op, lowering, operands)
        try:
            out = self.compared(call.op, lowering, values)
        except CONCRETIZATION as error:
            raise self.data_dependent(str(call.op), blame.deciding(call.op, operands)) from error
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, TojaxError):
                raise
            raise blame.failed(call.op, operands, error) from error
        if not torch.is_grad_enabled():
            out = cut(call, out, operands, self.writing)
        origins = 0
        for operand in operands:
            origins |= getattr(operand, "origins", 0)
        if call.writes:
            out = call.write(out, args, kwargs)
        out = call.wrap(out, operands, origins, args, kwargs)
        if call.op is aten.cat.default:
            note(out, *args, **kwargs)
        elif call.op in CUTS and args[0].parts and not self.writing:
            out = self.pieces.restore(call.op, args, kwargs, out)
        return out

    def key(self, call: Call) -> jax.Array:
        """A fresh key for one random operator."""
        if self.rng is None:
            raise MissingRng(
                f"{call.op} draws random numbers and there is no rng",
                where=blame.where(),
                why="a JAX function gets its randomness as an argument",
                do="pass rng=jax.random.key(0), or use model.eval() if nothing should be random",
            )
        self.draws += 1
        return jax.random.fold_in(self.rng, self.draws)

    def branch(self) -> list[jax.Array | None]:
        """Two keys for code that JAX may trace again on its own, no keys where there is no rng."""
        if self.rng is None:
            return [None, None]
        self.draws += 1
        return list(jax.random.split(jax.random.fold_in(self.rng, self.draws)))

    @contextlib.contextmanager
    def drawing(self, rng: jax.Array | None) -> Iterator[None]:
        """Draws from another key for a while."""
        before = self.rng, self.draws
        self.rng, self.draws = rng, 0
        try:
            with self.inside():
                yield
        finally:
            self.rng, self.draws = before

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """In code that JAX traces on its own, whose conditions mean nothing outside of it."""
        ways, self.ways = self.ways, None
        conditions, self.conditions = self.conditions, None
        try:
            yield
        finally:
            self.ways, self.conditions = ways, conditions

    def data_dependent(self, what: str, operands, error=None, place: str = "") -> DataDependent:
        """The error for a value that Python code or a shape needs while it is traced."""
        origins = 0
        for operand in operands:
            origins |= getattr(operand, "origins", 0)
        names = tuple(name for i, name in enumerate(self.inputs) if origins >> i & 1)
        said = ", ".join(names) or "a traced value"
        return DataDependent(
            f"{what} needs the values of {said} while they are traced",
            arguments=names,
            where=place or blame.where(error),
            why="the program is compiled for all values at once, so none is known yet",
            do="call model(...), which makes integer arguments static that decide shapes, "
            f"or close over {said} instead of tracing it, or call model.apply outside jax.jit",
        )

    def without_row(self, op, args, kwargs):
        """torch's own decomposition: C++ runs above functionalization again, and so does Python
        that writes.
        """
        if op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            with self.above():
                return lower_tree(op.decompose(*lift(args), **lift(kwargs)))
        if any(a.is_write for a in op._schema.arguments):
            raise Write(str(op))
        if custom := OPDEFS.get(op._schema.name):  # written in Python with torch.library.custom_op
            with self.above():
                return lower_tree(custom._init_fn(*lift(args), **lift(kwargs)))
        function = decomposition_table.get(op) or getattr(op, "impl_aten", None)
        if (
            function is None or op in self.decomposing
        ):  # some decompositions come back to their operator
            return self.note_missing(op, args, kwargs)
        self.decomposing.add(op)
        try:
            with self:
                return function(*args, **kwargs)
        except Write:
            with self.above():
                return lower_tree(function(*lift(args), **lift(kwargs)))
        finally:
            self.decomposing.discard(op)

    def note_missing(self, op, args, kwargs):
        """Zeros of the right shape stand in for the result, so that one run finds all missing
        operators; or torch computes it.
        """
        blame.refuse_kind(op)
        if self.callback:
            call = call_of(op)
            self.unread.clear()
            return call_torch(op, args, kwargs, self.key(call) if call.random else None)
        self.missing.setdefault(str(op), (op, blame.where()))
        meta = lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
        try:
            shapes = op(
                *tree_map_only(torch.Tensor, meta, args),
                **tree_map_only(torch.Tensor, meta, kwargs),
            )
        except Exception as error:
            raise self.missing_ops() from error
        stand_in = lambda t: JaxTensor(jnp.zeros(t.shape, to_jax(t.dtype)), t.dtype)
        return tree_map_only(torch.Tensor, stand_in, shapes)

    def missing_ops(self) -> MissingOps:
        """The error that lists every operator without a lowering, with a stub to paste."""
        return blame.missing_ops(
            {name: op for name, (op, _) in self.missing.items()},
            {n: w for n, (_, w) in self.missing.items()},
        )

    @contextlib.contextmanager
    def above(self) -> Iterator[None]:
        """Back above functionalization, from inside the handler."""
        excluded = torch._C._dispatch_tls_is_dispatch_key_excluded(FUNCTIONALIZE)
        torch._C._dispatch_tls_set_dispatch_key_excluded(FUNCTIONALIZE, False)
        try:
            with self:
                yield
        finally:
            torch._C._dispatch_tls_set_dispatch_key_excluded(FUNCTIONALIZE, excluded)


def size_like(args) -> int:
    """How many elements a factory makes that takes its dtype, or its shape too, from a tensor."""
    own = len(args) > 1 and isinstance(args[1], (list, tuple))
    return torch.Size(args[1] if own else args[0].shape).numel()


def lift(tree):
    """Tensors of the trace into functional tensors, which torch code may write to."""
    return tree_map_only(
        torch.Tensor,
        lambda t: t if torch._is_functional_tensor(t) else torch._to_functional_tensor(t),
        tree,
    )


def lower_tree(tree):
    """Functional tensors back into what they hold, pending writes applied."""
    return tree_map_only(torch.Tensor, inner, tree)


def array_of(tensor: torch.Tensor) -> jax.Array:
    """The JAX array of a tensor of the trace, functional or not."""
    tensor = inner(tensor)
    return tensor.array if isinstance(tensor, JaxTensor) else weights.to_jax(tensor)


@contextlib.contextmanager
def tracing(
    rng: jax.Array | None, inputs: tuple[str, ...], callback: bool = False
) -> Iterator[Trace]:
    """Everything that is switched on while torch code is traced; one thread at a time."""
    autocast.refuse_around()
    trace = Trace(rng, inputs, callback)
    enter = lambda key: trace.drawing(key) if active() else tracing(key, inputs, callback)
    with LOCK, contextlib.ExitStack() as stack:
        stack.enter_context(_switched(active, _set_active, True))
        JaxTensor.runs += 1
        stack.callback(CONSTANTS.clear)
        stack.enter_context(uncompiled())
        stack.enter_context(draws.noticed())
        stack.enter_context(patched(active))
        stack.enter_context(custom_gradients(enter, active, array_of, lift, trace.branch))
        stack.enter_context(
            _switched(lambda: torch.compiler._is_compiling_flag, _set_compiling, True)
        )
        stack.enter_context(
            _switched(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled, False)
        )
        mha = torch.backends.mha
        stack.enter_context(_switched(mha.get_fastpath_enabled, mha.set_fastpath_enabled, False))
        torch._enable_functionalization(reapply_views=True)
        stack.callback(torch._disable_functionalization)
        stack.enter_context(
            torch.jit.optimized_execution(False)
        )  # of TorchScript: no fused kernels
        stack.enter_context(torch.enable_grad())  # so that a no_grad region inside forward shows
        stack.enter_context(torch._C._AutoDispatchBelowAutograd())
        stack.enter_context(ConstantsMode(trace, inner, lift))
        stack.enter_context(trace)
        try:
            yield trace
        except Exception as error:
            if trace.missing and not isinstance(error, MissingOps):
                raise trace.missing_ops() from error
            raise
    if trace.missing:
        raise trace.missing_ops()


@contextlib.contextmanager
def watching() -> Iterator[Counter]:
    """Counts the operators that are dispatched by traces in here."""
    seen: Counter = Counter()
    WATCHERS.append(seen)
    try:
        yield seen
    finally:
        WATCHERS.remove(seen)


def active() -> bool:
    """Whether this thread is tracing."""
    return getattr(_THREAD, "active", False)


def _set_active(value: bool) -> None:
    _THREAD.active = value


def _set_compiling(value: bool) -> None:
    torch.compiler._is_compiling_flag = value


@contextlib.contextmanager
def _switched(get, put, value: bool) -> Iterator[None]:
    """A switch of torch's at ``value`` for a while."""
    was = get()
    put(value)
    try:
        yield
    finally:
        put(was)
