"""Weights and inputs between torch and JAX."""

from __future__ import annotations

import ctypes
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from anyjax import multiprocess, trees
from anyjax.dtypes import fitting, x64
from anyjax.errors import Unsupported
from anyjax.torch.core import private
from anyjax.torch.core.dtypes import TO_JAX, TO_TORCH, WIDE, widened
from anyjax.torch.core.tensor import JaxTensor

SHARE = 1 << 20  # bytes; below, a copy costs less than the bookkeeping
ALIGNED = 64  # bytes, what XLA asks of memory from outside
USERS = 3  # of a storage: the module's tensor, the one without gradient, the storage as an object
_FUNCTIONALIZE = private.DispatchKeySet(private.FUNCTIONALIZE)


def is_dense(tensor: torch.Tensor) -> bool:
    """Returns whether the elements of a tensor could be those of an array."""
    return tensor.layout is torch.strided and not tensor.is_quantized


def to_jax(tensor: torch.Tensor) -> jax.Array:
    """Returns a torch tensor as a JAX array of its own; 64-bit types are narrowed while x64 is off.

    Large tensors share their memory until torch writes to it (copy on write).

    Raises:
      Unsupported: a 64-bit integer does not fit 32 bits, or the tensor is sparse, quantized or on
        "meta".

    Example:
      >>> to_jax(torch.arange(3))
      Array([0, 1, 2], dtype=int32)
    """
    if isinstance(tensor, JaxTensor):
        return tensor.array
    # A trace may be going on: its modes must not see this, functional memory would not outlive it.
    listed, JaxTensor.living = JaxTensor.living, None  # torch code never holds the copy
    try:
        with private.ExcludeKeys(_FUNCTIONALIZE), private.DisableTorchFunction():
            return _to_jax(tensor.detach())
    finally:
        JaxTensor.living = listed


def _to_jax(tensor: torch.Tensor) -> jax.Array:
    if not is_dense(tensor) or tensor.device.type == "meta":
        raise Unsupported(
            f"a {tensor.layout} tensor of {tensor.dtype} on {tensor.device} has no JAX array",
            why="on meta it has no values" if tensor.device.type == "meta" else "it is not dense",
            do="give a dense tensor with values: load the weights, or call tensor.to_dense() or "
            "tensor.dequantize()",
        )
    if tensor.dtype in WIDE and not x64():
        tensor = _narrow(tensor)
    if (shared := _shared(tensor)) is not None:
        return shared
    copy = tensor.cpu().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    dtype = np.dtype(TO_JAX[copy.dtype])
    if dtype.kind == "V" or (dtype.itemsize < 4 and copy.dtype.is_floating_point):
        copy = copy.view(getattr(torch, f"uint{8 * dtype.itemsize}"))
    return _taken(copy.numpy().view(dtype))


def _taken(values: np.ndarray) -> jax.Array:
    """Returns an array in the memory of ``values``, which belong to nobody else.

    JAX frees what comes from numpy where Python runs. What comes by DLPack it frees in a thread of
    XLA's; torch asks for Python's lock there, and the process aborts if that is on its way out.
    """
    with jax.ensure_compile_time_eval():
        return jax.device_put(values)


def _shared(tensor: torch.Tensor) -> jax.Array | None:
    """Returns the tensor's own memory as an array where that is safe: large, on the CPU, copied on
    write.

    torch gives the writer, whoever it is, a copy of its own; JAX never writes to memory from
    outside. A numpy array that saw the memory before is no such writer: it has the address, and a
    tensor of its own behind it, which counts as a user of the storage.
    """
    size = tensor.numel() * tensor.element_size()
    fits = tensor.device.type == "cpu" and tensor.is_contiguous() and size >= SHARE
    if not fits or tensor.is_conj() or tensor.is_neg() or private.data_address(tensor) % ALIGNED:
        return None
    if private.storage_users(tensor.untyped_storage()._cdata) > USERS:
        return None
    try:
        clone = private.lazy_clone(tensor)
    except RuntimeError:  # memory that is not torch's: mapped files, other processes
        return None
    memory = (ctypes.c_char * size).from_address(private.data_address(clone))
    memory.owner = clone
    return _taken(np.frombuffer(memory, TO_JAX[tensor.dtype]).reshape(tensor.shape))


def _narrow(tensor: torch.Tensor) -> torch.Tensor:
    if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        tensor = torch.from_numpy(fitting(tensor.cpu().numpy()))
    return tensor.to(WIDE[tensor.dtype])


def to_torch(array: jax.Array) -> torch.Tensor:
    """Returns a copy of a JAX array as a torch tensor on the CPU.

    Raises:
      Unsupported: other processes hold parts of it.

    Example:
      >>> to_torch(jax.numpy.ones(2, "bfloat16"))
      tensor([1., 1.], dtype=torch.bfloat16)
    """
    if not multiprocess.is_local(array) and not array.is_fully_replicated:
        raise Unsupported(
            f"an array of shape {list(array.shape)} lies in {jax.process_count()} processes",
            why="this one holds a part of it only",
            do="anyjax.save_pretrained(model, folder) or model.save(folder), called in all of them",
        )
    values = np.array(jax.device_get(widened(array)), order="C")
    dtype = TO_TORCH[values.dtype]
    if values.dtype.kind == "V" or (dtype.itemsize < 4 and dtype.is_floating_point):
        bits = torch.from_numpy(values.view(f"u{values.dtype.itemsize}"))
        return bits.view(dtype)
    return torch.from_numpy(values)


def view_as_jax(tensor: torch.Tensor) -> jax.Array:
    """Returns a CPU tensor as an array in the same memory where its layout allows that, else a
    copy. Nobody may write to the tensor as long as the array is used.

    Example:
      >>> x = torch.arange(3.0)
      >>> view_as_jax(x).unsafe_buffer_pointer() == x.data_ptr()
      True
    """
    if isinstance(tensor, JaxTensor):
        return tensor.array
    with private.ExcludeKeys(_FUNCTIONALIZE), private.DisableTorchFunction():
        tensor = tensor.detach()
        size = tensor.numel() * tensor.element_size()
        is_plain = tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())
        is_narrow = tensor.dtype not in WIDE or x64()
        if not size or not is_plain or not is_narrow or tensor.data_ptr() % ALIGNED:
            return to_jax(tensor)
        memory = (ctypes.c_char * size).from_address(tensor.data_ptr())
        memory.owner = tensor
        return _taken(np.frombuffer(memory, TO_JAX[tensor.dtype]).reshape(tensor.shape))


def view_as_torch(array: jax.Array) -> torch.Tensor:
    """Returns an array as a tensor in the same memory if it is on one CPU device, else a copy."""
    array = jax.numpy.asarray(widened(array))
    devices = [*array.devices()]
    if len(devices) == 1 and devices[0].platform == "cpu" and array.size:
        return torch.from_dlpack(array)
    return to_torch(array)


def input_tensor(leaf: Any, origin: int) -> Any:
    """Returns an input leaf as a tensor: a constant of the trace if its values are known, else
    traced.
    """
    if isinstance(leaf, trees.Constant):
        return torch.from_numpy(leaf.array.copy())  # the user's own, which may be read-only
    if isinstance(leaf, torch.Tensor):
        return JaxTensor(to_jax(leaf), leaf.dtype, origin)
    if not trees.is_array(leaf):
        return leaf
    if isinstance(leaf, (np.ndarray, np.generic)):
        leaf = widened(fitting(np.asarray(leaf)))
        return JaxTensor(jnp.asarray(leaf), TO_TORCH[leaf.dtype], origin)
    return JaxTensor(jnp.asarray(leaf), None, origin)  # may be narrowed
