"""One operator on tensors whose arrays JAX has: the table's lowering as a compiled program, a view,
or a write.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import jax
import jax.numpy as jnp
import torch

from anyjax.errors import AnyjaxError, Unsupported
from anyjax.torch.core import diagnostics, private, strides
from anyjax.torch.core.call import Call, call_of
from anyjax.torch.core.dtypes import to_jax
from anyjax.torch.core.pytrees import map_tensors
from anyjax.torch.eager import programs, views, writes
from anyjax.torch.eager.tensor import (
    EagerTensor,
    from_torch,
    known,
    no_values,
    of_layout,
    tensor_of,
    torchs,
)
from anyjax.torch.lowering import foreach
from anyjax.torch.lowering.run import CONCRETIZATION
from anyjax.typing import PyTree

aten = torch.ops.aten

ALONE = 2  # references to a memory that one tensor has, while they are counted
INDEXED = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
INDEXED |= {aten.mkldnn_rnn_layer}  # which torch gives zeros for biases that there are none of


def run(op: private.OpOverload, args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Returns the result of an operator, as tensors on JAX."""
    call = call_of(op)
    special = SPECIAL.get(op)
    if special is not None and (out := special(args, kwargs)) is not NotImplemented:
        return out
    if call.signature.writes:
        writes.check_targets(call, args, kwargs)
        return writes.run(call, *_on_jax(call, args, kwargs), run)
    args, kwargs = _on_jax(call, args, kwargs)
    if call.view:
        if op.has_kernel_for_dispatch_key(private.COMPOSITE):
            return op.decompose(*args, **kwargs)  # a view, or a copy
        return views.view(call, args, kwargs)
    try:
        if foreach.serves(op):  # one by one, for the numbers in lists are others in each step
            return programs.compute(call, args, kwargs)
        return programs.run(call, args, kwargs)
    except AnyjaxError:
        raise
    except jax.errors.UnexpectedTracerError as error:
        raise escaped(op) from error
    except CONCRETIZATION as error:
        raise no_values(str(op)) from error


def _on_jax(call: Call, args: tuple, kwargs: dict[str, PyTree]) -> tuple[tuple, dict[str, Any]]:
    """Returns the arguments with torch's own tensors as tensors on JAX, where they may be mixed.

    Raises:
      Unsupported: there is one with dimensions.
    """
    for value in args:
        if isinstance(value, EagerTensor) or not isinstance(value, (torch.Tensor, list, tuple)):
            continue
        if type(value) not in (list, tuple) or any(map(_is_torchs, value)):
            break
    else:
        if not any(map(_is_torchs, kwargs.values())):
            return args, kwargs
    may_mix = call.op.overloadpacket in INDEXED or private.graph_task() != -1

    def mixed(tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, EagerTensor):
            return tensor
        if (tensor.dim() and not may_mix) or tensor.is_meta or tensor.requires_grad:
            raise Unsupported(
                f"{call.op} of tensors on JAX and a {tensor.dtype}{[*tensor.shape]} of torch on "
                f"{tensor.device}",
                where=diagnostics.where(),
                why="each would have to be copied in every call, as between two devices of torch",
                do="move it once: anyjax.torch.interop.to_jax(x); to torch: x.torch()",
            )
        return from_torch(tensor)

    return map_tensors(mixed, args), map_tensors(mixed, kwargs)


def _is_torchs(value: object) -> bool:
    return isinstance(value, torch.Tensor) and not isinstance(value, EagerTensor)


def escaped(op: object) -> Unsupported:
    """Returns the error for a tensor that JAX traced in a program which is over."""
    return Unsupported(
        f"a tensor from inside a compiled function is used outside of it, in {op}",
        where=diagnostics.where(),
        why="it stands for a value of a program that JAX traced, not for numbers",
        do="return it from the function instead of keeping it",
    )


def _number(args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Returns the only value of a tensor."""
    array = known(args[0], "item()")
    return torchs(array, args[0].dtype).item()


def _equal(args: tuple, kwargs: dict[str, PyTree]) -> bool:
    """Returns whether two tensors have the same shape and values."""
    first, second = map(from_torch, args)
    if first.shape != second.shape:
        return False
    return bool(known(EagerTensor(jnp.array_equal(first.array, second.array)), "equal()"))


def _copied(args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Serves copies to another device: of a shape to "meta"."""
    if torch.device(kwargs.get("device") or "cpu").type == "cpu":
        return NotImplemented
    return aten._to_copy.default(strides.to_meta(args[0]), **kwargs)


def _filled(args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Copies between torch's own tensors and those on JAX."""
    target, source = args[:2]
    if isinstance(target, EagerTensor):
        return (
            aten.copy_.default(target, from_torch(source))
            if _is_torchs(source)
            else (NotImplemented)
        )
    return aten.copy_.default(target, source.torch())


def _resized(args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Gives a tensor another size, where nothing else lies in its memory."""
    target, size = args[:2]
    count = math.prod(size)
    is_shared = sys.getrefcount(target.memory) > ALONE or target.spec.owner is not None
    if target.numel() and (is_shared or not target.is_contiguous()):
        return NotImplemented
    first = target.array.reshape(-1)[:count]
    elements = jnp.zeros(count, first.dtype).at[: first.size].set(first)
    target.become(tensor_of(of_layout(tuple(size), target.dtype), elements.reshape(size)))
    return target


def _loaded(args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Makes a tensor of what ``torch.load`` has read."""
    target: EagerTensor = args[0]
    with private.DisableTorchDispatch():
        loaded = torch.empty(0, dtype=target.dtype).set_(*args[1:])
    target.become(from_torch(loaded))
    return target


def _strided(
    size: list[int], stride: list[int], dtype: torch.dtype | None = None, **_: PyTree
) -> EagerTensor:
    """Makes a tensor with these strides, through which autograd writes gradients of views."""
    spec = of_layout(tuple(size), dtype or torch.get_default_dtype(), (tuple(stride), 0))
    return tensor_of(spec, jnp.zeros(spec.shape, to_jax(spec.dtype)))


SPECIAL: dict[Any, Any] = {
    aten.empty_strided.default: lambda args, kwargs: _strided(*args, **kwargs),
    aten.new_empty_strided.default: lambda args, kwargs: _strided(
        *args[1:], **{"dtype": args[0].dtype} | kwargs
    ),
    aten.resize_.default: _resized,
    aten.set_.source_Storage_storage_offset: _loaded,
    aten._local_scalar_dense.default: _number,
    aten.equal.default: _equal,
    # torch's kernels write through it: out= of kron.
    aten._unsafe_view.default: lambda args, kwargs: aten.view.default(*args, **kwargs),
    aten._to_copy.default: _copied,
    aten.copy_.default: _filled,
    aten.as_strided_copy.default: lambda args, kwargs: aten.clone.default(
        aten.as_strided.default(*args, **kwargs)
    ),
    # Attention as its formula: what torch's kernels would keep for gradients is theirs.
    aten._fused_sdp_choice.default: lambda args, kwargs: 0,
}
EagerTensor.run_op = staticmethod(run)
