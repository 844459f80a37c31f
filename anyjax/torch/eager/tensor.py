"""The tensor of ``on_jax``: a ``torch.Tensor`` without storage around a ``jax.Array``.

Tensors that share memory share a ``Memory``. A view is a chain of operators on the array there. It
is computed where it is read, inside the program that reads it, so that it shows what was last
written, through whichever tensor.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, SupportsIndex, TypeVar, cast

import jax
import numpy as np
import torch
from torch import Tensor

from anyjax.dtypes import x64
from anyjax.errors import DataDependent, Unsupported
from anyjax.torch.core import diagnostics, interop, private
from anyjax.torch.core.dtypes import TO_JAX, holding, of_input, widened
from anyjax.torch.core.strides import Layout
from anyjax.torch.core.tensor import JaxTensor
from anyjax.typing import PyTree

F = TypeVar("F", bound=Callable[..., Any])
DOUBLE = {torch.float64, torch.complex128}
FORMULA = ContextVar("FORMULA", default=False)  # whether torch computes an operator by others
KIND: ContextVar[type[EagerTensor] | None] = ContextVar("KIND", default=None)  # of new tensors


class Step(NamedTuple):
    """A view: an operator on the tensor before it, and which of its results. "select" and "slice"
    are those that begin anywhere.
    """

    op: Any
    args: tuple
    kwargs: tuple[tuple[str, Any], ...]
    place: int | None


class Memory:
    """Memory of tensors that torch would give the same storage."""

    __slots__ = ("array", "stored")

    def __init__(self, array: jax.Array):
        self.array = array
        # The array that was last copied to a storage of torch's, and that storage, both weakly.
        self.stored: tuple[Callable[[], Any], Callable[[], Any]] = (lambda: None, lambda: None)

    def storage(self, dtype: torch.dtype) -> torch.UntypedStorage:
        """Returns a copy as a storage of torch's: the same one for as long as somebody holds it, so
        that ``torch.save`` writes it once for all tensors in it.
        """
        copied, storage = (reference() for reference in self.stored)
        if storage is None or copied is not self.array:
            storage = torchs(self.array, dtype).untyped_storage()
            self.stored = weakref.ref(self.array), weakref.ref(storage)
        return storage

    def __deepcopy__(self, memo: dict[int, PyTree]) -> Memory:
        return Memory(self.array)


@dataclass(eq=False, slots=True)
class Spec:
    """All that is known of a tensor but its values; equal ones are the same object.

    Attributes:
      shape, dtype, stride, offset: as torch sees them.
      owner: the spec of the array in memory, of which this is a view; None if it is this one.
      steps: from there to the view.
      starts: where the selections and slices among the steps begin.
      template: the spec that programs are made for, which begin anywhere.
    """

    shape: torch.Size
    dtype: torch.dtype
    stride: tuple[int, ...]
    offset: int
    owner: Spec | None = None
    steps: tuple[Step, ...] = ()
    starts: tuple[int, ...] = ()
    template: Any = None


@functools.lru_cache(1 << 16)
def spec_of(*parts: PyTree) -> Spec:
    """Returns the spec of these parts, always the same one."""
    spec = Spec(*parts)
    shape, dtype, stride, _, owner, steps = (*parts, None, ())[:6]
    spec.template = spec_of(shape, dtype, stride, 0, owner, steps) if spec.starts else spec
    return spec


def of_layout(shape: tuple[int, ...], dtype: torch.dtype, layout: Layout | None = None) -> Spec:
    """Returns the spec of a tensor with an array of its own.

    Raises:
      Unsupported: torch would have 64-bit floats, which JAX has not unless x64 is on.
    """
    # Scalars of torch's own formulas, and empty tensors, may be such.
    if dtype in DOUBLE and shape and 0 not in shape:
        refuse_double(dtype)
    stride = layout[0] if layout and _is_dense(shape, layout[0]) else _contiguous(tuple(shape))
    return spec_of(torch.Size(shape), dtype, tuple(stride), 0)


def refuse_double(dtype: torch.dtype | None) -> None:
    """Raises Unsupported for 64-bit floats, which JAX has not unless x64 is on.

    Inside of torch's own formulas they are let through: their results are looked at.
    """
    if dtype in DOUBLE and not x64() and private.graph_task() == -1 and not FORMULA.get():
        raise Unsupported(
            f"a tensor of {dtype} on JAX",
            where=diagnostics.where(),
            why="JAX keeps 32-bit floats unless x64 is on",
            do='make it torch.float32, or call jax.config.update("jax_enable_x64", True) first',
        )


def _is_dense(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Returns whether each element has a place of its own, with none between them."""
    expected = 1
    for step, size in sorted((s, n) for s, n in zip(stride, shape) if n != 1):
        if step != expected:
            return False
        expected *= size
    return 0 not in shape


@functools.lru_cache(4096)
def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    if not {*map(type, shape)} <= {int}:
        raise Unsupported(
            f"a tensor on JAX of the shape {shape}",
            where=diagnostics.where(),
            why="its operators are traced one by one, for sizes that are known",
            do="trace the module at once: anyjax.from_torch, or torchax.extract_jax",
        )
    return torch.empty(shape, device="meta").stride()


class EagerTensor(JaxTensor):
    """A tensor around a ``jax.Array``, which operators and torch's autograd work on.

    Attributes:
      spec: shape, dtype and layout; of a view, how it is computed from what is in memory.
      memory: where the array is, of which this may be a view.
    """

    spec: Spec
    memory: Memory
    # What makes tensors itself, and so stands above: dispatch.py and others put it here.
    call: ClassVar[Callable[..., Any]]
    cut: ClassVar[Callable[..., Any]]
    run_op: ClassVar[Callable[..., Any]]
    read_view: ClassVar[Callable[[EagerTensor], jax.Array]]
    context: ClassVar[Callable[..., contextlib.AbstractContextManager]]
    write_to: ClassVar[Callable[[EagerTensor, jax.Array], None]]
    made_by = None
    origins = 0

    @classmethod
    def class_of(cls, spec: Spec) -> type[EagerTensor]:
        """Returns the class of a new tensor of this spec beside one of this class."""
        return EagerTensor

    @staticmethod
    def __new__(cls, array, dtype=None, origins=0, layout=None):
        if dtype is None:
            dtype = of_input(holding(array.dtype))
        return tensor_of(of_layout(array.shape, dtype, layout), array)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return cls.call(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        with private.DisableTorchFunctionSubclass():
            return cls.dispatched(op, args, kwargs or {})

    @classmethod
    def dispatched(cls, op: private.OpOverload, args: tuple, kwargs: dict[str, PyTree]) -> Any:
        """Returns the result of an operator."""
        return cls.run_op(op, args, kwargs)

    @staticmethod
    def overridden() -> bool:
        """Returns whether operators may be others than the table's now."""
        return False

    @property
    def array(self) -> jax.Array:
        """The array as it is now; of a dtype that torch has not, in one that holds its values."""
        return cast(jax.Array, widened(self.jax()))

    @array.setter
    def array(self, array: jax.Array) -> None:
        type(self).write_to(self, array)

    def jax(self) -> jax.Array:
        """Returns the array itself, without a copy."""
        if self.spec.owner is None:
            return self.memory.array
        return type(self).read_view(self)

    def torch(self) -> Tensor:
        """Returns a copy as a tensor of torch's own, of the same dtype, without its history."""
        return torchs(known(self, "torch()"), self.dtype)

    def numpy(self, *, force: bool = False) -> np.ndarray:
        if self.requires_grad and not force:
            raise RuntimeError(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy()"
            )
        with private.DisableTorchDispatch():
            return self.torch().numpy()

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        values = self.numpy()
        return values if dtype is None else values.astype(dtype)

    def tolist(self) -> Any:
        """Returns the values as numbers in lists."""
        with private.DisableTorchDispatch():
            return self.torch().tolist()

    @property
    def data(self) -> Tensor:
        """The same memory without history; another tensor takes its place by assignment."""
        if isinstance(self.memory.array, jax.core.Tracer):
            return self.cut()
        return in_memory(self.spec, self.memory, type(self))  # whose writes autograd does not count

    @data.setter
    def data(self, new: Tensor) -> None:
        self.become(from_torch(new))

    def become(self, other: EagerTensor) -> None:
        """Takes shape, dtype and memory of another tensor; gradients and hooks stay."""
        torch.Tensor.data.__set__(self, other)
        self.spec, self.memory = other.spec, other.memory

    def _storage(self, *args, **kwargs):
        raise Unsupported(
            "the storage of a tensor on JAX",
            where=diagnostics.where(),
            why="its values are in a jax.Array, which torch has no address of",
            do="x.jax() gives the array, x.torch() a copy in torch's memory",
        )

    data_ptr = untyped_storage = storage = share_memory_ = __dlpack__ = _storage

    def __deepcopy__(self, memo: dict[int, PyTree]) -> Tensor:
        if id(self) not in memo:
            if self.grad_fn is not None:
                raise RuntimeError("Only Tensors created explicitly by the user support deepcopy")
            copied = in_memory(self.spec, copy.deepcopy(self.memory, memo), type(self))
            memo[id(self)] = copied.as_leaf_like(self)
            if self.grad is not None:
                copied.grad = copy.deepcopy(self.grad, memo)
        return memo[id(self)]

    def __copy__(self) -> Tensor:
        return self.detach().as_leaf_like(self)

    def as_leaf_like(self, other: Tensor) -> Tensor:
        """Returns itself as a leaf, and a parameter, where the other one is."""
        for name, value in vars(other).items():
            if name not in ("spec", "memory"):  # _is_param, and what users have set
                setattr(self, name, value)
        if isinstance(other, torch.nn.Parameter):
            setattr(self, private.IS_PARAMETER, True)
        return self.requires_grad_(other.requires_grad)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        owner = self.spec.owner or self.spec
        strided = owner.dtype == self.dtype and not self.dtype.is_complex
        with private.DisableTorchDispatch():
            copy = self.torch()
            if strided and owner.stride == _contiguous(tuple(owner.shape)):
                storage, offset = self.memory.storage(self.dtype), self.storage_offset()
                copy = copy.new_empty(0).set_(storage, offset, self.shape, self.stride())
            if getattr(self, private.IS_PARAMETER, False):
                copy = torch.nn.Parameter(copy, self.requires_grad)
            return copy.requires_grad_(self.requires_grad).__reduce_ex__(protocol)

    def __repr__(self, **kwargs) -> str:
        if isinstance(self.array, jax.core.Tracer):
            values = f"{self.array}"
        else:
            copy = torchs(self.array, self.dtype)
            with private.DisableTorchDispatch():
                values = repr(copy)[len("tensor(") : -1]
        grad = f", grad_fn=<{type(self.grad_fn).__name__}>" if self.grad_fn else ""
        return f"JaxTensor({values}{grad or ', requires_grad=True' * self.requires_grad})"

    def __format__(self, format_spec: str) -> str:
        return format(self.item() if self.dim() == 0 else repr(self), format_spec)


@contextlib.contextmanager
def made_as(kind: type[EagerTensor] | None) -> Iterator[None]:
    """Makes new tensors of this class for a while; of that which it was, for None."""
    outer = KIND.set(kind or KIND.get())
    try:
        yield
    finally:
        KIND.reset(outer)


def keeping_class(function: F) -> F:
    """Returns a function whose calls make tensors of the class that new ones have now."""
    kind = KIND.get()
    if kind is None:
        return function

    @functools.wraps(function)
    def called(*args: PyTree, **kwargs: PyTree) -> Any:
        with made_as(kind):
            return function(*args, **kwargs)

    return cast(F, called)


def tensor_of(spec: Spec, array: jax.Array) -> EagerTensor:
    """Returns a tensor of this spec with memory of its own."""
    return in_memory(spec, Memory(array))


def in_memory(spec: Spec, memory: Memory, kind: type[EagerTensor] | None = None) -> EagerTensor:
    """Returns a tensor of this spec in this memory, of the class that tensors of ``kind`` have."""
    kind = kind or KIND.get()
    self = private.make_wrapper(
        EagerTensor if kind is None else kind.class_of(spec),
        spec.shape,
        spec.stride,
        spec.offset,
        dtype=spec.dtype,
        device="cpu",
    )
    private.forbid_pointer(self)
    self.spec, self.memory = spec, memory
    return self


def torchs(array: jax.Array, dtype: torch.dtype) -> torch.Tensor:
    """Returns a copy as a tensor of torch's own."""
    with private.DisableTorchDispatch():
        return interop.to_torch(array).to(dtype)


def known(tensor: EagerTensor, what: str) -> jax.Array:
    """Returns the array.

    Raises:
      DataDependent: its values are known to a compiled program alone.
    """
    array = tensor.array
    if isinstance(array, jax.core.Tracer):
        raise no_values(what)
    return array


def no_values(what: str) -> DataDependent:
    """Returns the error for values that Python code asks a tracer for."""
    return diagnostics.data_dependent(what, (), diagnostics.where())


def from_torch(tensor: torch.Tensor) -> EagerTensor:
    """Returns a copy of a tensor of torch's own, or one around the array that a tensor has."""
    if isinstance(tensor, EagerTensor):
        return tensor
    if tensor.dtype not in TO_JAX or tensor.device.type != "cpu" or isinstance(tensor, JaxTensor):
        raise Unsupported(
            f"a tensor of {tensor.dtype} on {tensor.device} beside tensors on JAX",
            where=diagnostics.where(),
            why="it has no values that JAX could take" if tensor.is_meta else "JAX has none such",
            do="make it on the CPU, of a dtype that JAX has",
        )
    refuse_double(tensor.dtype)
    spec = of_layout(tensor.shape, tensor.dtype)
    with private.DisableTorchDispatch():
        return tensor_of(spec, interop.to_jax(tensor))
