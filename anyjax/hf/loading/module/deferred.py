"""Tensors that are still on disk: shapes are known, bytes are read when a tensor is placed.

transformers' loader renames, casts and merges them as if they were in memory. Its operations are
recorded, and run tensor by tensor, each into memory that JAX then takes over.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from anyjax.errors import BadCheckpoint, Unsupported
from anyjax.hf.loading.find.checkpoint import Stored
from anyjax.torch.core import private
from anyjax.typing import PyTree

aten = torch.ops.aten
# Elementwise operators: a slice of the result needs only that slice of the operand.
ELEMENTWISE = {aten.alias.default, aten.clone.default, aten.detach.default, aten._to_copy.default}
DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F32": torch.float32,
    "F64": torch.float64,
    "I64": torch.int64,
    "U64": torch.uint64,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
Index = tuple[slice, ...] | None
PIECE = 1 << 20  # bytes: a piece that the kernel has cleared is in the cache when it is filled
MADV_POPULATE_WRITE = 23  # Linux 5.14; the module mmap has no name for it
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Deferred(torch.Tensor):
    """A tensor whose values are read later.

    Attributes:
      read: returns all values, or those at an index of slices.
      sliced: whether reading a slice is cheaper than reading everything.
      read_as: as ``read``, and takes the dtype to read as; None where no file has the values.
      base: the tensor that this one is a view of.
      readers: tensors that are computed from this one.
      grid: returns the matrix as small numbers, see ``quantized/grid.py``.
    """

    read: Callable[..., torch.Tensor]
    sliced: bool
    read_as: Callable[..., torch.Tensor] | None = None
    base: Deferred | None = None
    readers: list[weakref.ref[Deferred]]
    grid: Callable[[], Any] | None = None

    @staticmethod
    def __new__(cls, like, read, sliced):
        self = private.make_wrapper(cls, like.shape, like.stride(), dtype=like.dtype, device="cpu")
        self.read, self.sliced, self.readers = read, sliced, []
        return self

    @property
    def root(self) -> Deferred:
        """The tensor that this one is a view of, or a view of a view; itself if it is none."""
        return self if self.base is None else self.base.root

    def settle(self) -> torch.Tensor:
        """Reads the tensor for good: from now on its values are in this memory."""
        memory = self.read()
        self.read, self.read_as, self.grid = partial(_at, memory), None, None
        return memory

    __torch_function__ = private.no_torch_function

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if any(str(r.type) not in ("Tensor", "List[Tensor]") for r in op._schema.returns):
            return op(*read_all(args), **read_all(kwargs))  # a value is asked for, such as equal
        if op._schema.is_mutable:
            return _run_mutable(op, args, kwargs)
        if op is aten._to_copy.default:
            kwargs.pop("device", None)  # it will be the CPU
        shapes = op(*tree_map_only(torch.Tensor, _meta, args), **kwargs)
        leaves, structure = tree_flatten(shapes)
        if op in ELEMENTWISE:
            sliced = args[0].sliced
            reads = [partial(_read_elementwise, op, args, kwargs)]
        else:
            sliced = False
            node = Node(partial(_compute, op, args, kwargs), len(leaves))
            reads = [partial(node.read, i) for i in range(len(leaves))]
        outs = [Deferred(x, r, sliced) for x, r in zip(leaves, reads)]
        view = any(a.alias_info is not None for a in op._schema.arguments)
        for out in outs:
            out.base = args[0] if view else None
            if op in ELEMENTWISE and out.dtype.is_floating_point and args[0].grid is not None:
                out.grid = lambda: args[0].grid and args[0].grid()  # None after a write to args[0]
        if not view:
            for operand in (x for x in tree_leaves((args, kwargs)) if isinstance(x, Deferred)):
                operand.root.readers.extend(map(weakref.ref, outs))
        return tree_unflatten(outs, structure)

    def __deepcopy__(self, memo):
        """Returns an independent tensor: writes to either are not seen by the other.

        PEFT copies the modules that an adapter trains whole.
        """
        with torch.no_grad():
            out = self.detach().clone()
        if isinstance(self, torch.nn.Parameter):
            out = torch.nn.Parameter(out, requires_grad=self.requires_grad)
        memo[id(self)] = out
        return out

    def __repr__(self, **kwargs):
        return f"Deferred({tuple(self.shape)}, {self.dtype})"


class Node:
    """One operator's results.

    Several results are kept until all have been read, another operator's are kept, or no tensor
    refers to them.
    """

    lock = threading.RLock()  # reading one result may read operands
    keeper: Callable[[], Node | None] = staticmethod(
        lambda: None
    )  # weak: the only node with results

    def __init__(self, compute: Callable[[], list[torch.Tensor]], count: int):
        self.compute, self.count, self.unread = compute, count, count
        self.results: list[torch.Tensor] = []

    def read(self, i: int, index: Index = None) -> torch.Tensor:
        """Returns result ``i``."""
        with Node.lock:  # one at a time also saves memory, which operands and result share
            if self.count == 1:
                out = _at(self.compute()[0], index)
                _trim()
                return out
            if not self.results:
                results = self.compute()
                Node.forget()
                self.results, Node.keeper = results, weakref.ref(self)
            out = _at(self.results[i], index).clone()  # a view would keep all results alive
            self.unread -= 1
            if self.unread <= 0:
                Node.forget()
        return out

    @staticmethod
    def forget() -> None:
        """Drops the results that are kept."""
        if (node := Node.keeper()) is not None:
            node.results = []


def _trim() -> None:
    """Returns freed memory to the system: glibc would keep all operands of a few megabytes."""
    if LIBC is not None and hasattr(LIBC, "malloc_trim"):
        LIBC.malloc_trim(0)


def _populate(address: int, size: int) -> None:
    """Asks the kernel for all pages of new memory at once: one fault for each takes longer.

    Reading brings those that an older kernel does not.
    """
    if LIBC is not None:
        start = address & -mmap.PAGESIZE
        size += address - start
        LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), MADV_POPULATE_WRITE)


def read_all(tree: PyTree) -> Any:
    """Returns the tree with every deferred tensor read."""
    return tree_map_only(Deferred, lambda t: t.read(), tree)


def from_file(stored: Stored, reader: Reader) -> Deferred:
    """Returns the deferred tensor of a safetensors file."""
    like = torch.empty(stored.shape, dtype=DTYPES[stored.dtype], device="meta")
    tensor = Deferred(like, partial(reader.read, stored), sliced=True)
    tensor.read_as = tensor.read
    return tensor


@dataclass(eq=False)
class Reader:
    """Open files; ``count`` is called with the number of bytes of each read."""

    count: Callable[[int], object] = lambda size: None
    files: dict[Path, Any] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.Lock)

    def read(
        self, stored: Stored, index: Index = None, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Returns the tensor, or its values at ``index``, in memory of its own, as ``dtype``."""
        stored_dtype = DTYPES[stored.dtype]
        ranges = [range(n)[s] for n, s in zip(stored.shape, index or ())]
        shape = (*map(len, ranges), *stored.shape[len(ranges) :])
        first = ranges[0] if ranges else range(0)
        is_rows = shape[1:] == stored.shape[1:] and first.step == 1  # they lie in one piece
        is_cast = is_rows and dtype not in (None, stored_dtype)
        values = torch.empty(shape, dtype=dtype if is_cast else stored_dtype)
        if is_rows:  # torch's memory is aligned to 64 bytes, as XLA wants it
            start = first.start * stored.size // stored.shape[0] if first else 0
            fill = self._fill_cast if is_cast else self._fill
            fill(stored, stored.offset + start, values.view(-1))
        else:
            every = (*stored.shape, stored_dtype.itemsize)
            mapped = np.memmap(stored.file, np.uint8, "r", stored.offset, every)[index]
            np.copyto(_bytes(values).reshape(mapped.shape), mapped)  # touches only these pages
        self.count(math.prod(shape) * stored_dtype.itemsize)
        return values if dtype is None else values.to(dtype)

    def _fill_cast(self, stored: Stored, offset: int, values: torch.Tensor) -> None:
        """Fills a tensor of another dtype than the file's, without memory for all of the file's."""
        scratch = torch.empty(PIECE, dtype=torch.uint8).view(DTYPES[stored.dtype])
        for piece in values.split(len(scratch)):
            source = scratch[: len(piece)]
            self._fill(stored, offset, source)
            _populate(piece.data_ptr(), piece.nbytes)
            piece.copy_(source)
            offset += source.nbytes

    def _fill(self, stored: Stored, offset: int, values: torch.Tensor) -> None:
        """Fills a tensor by reading: mapped pages would count as memory of this process."""
        with self.lock:
            if (path := stored.file) not in self.files:
                self.files[path] = open(path, "rb", buffering=0)  # noqa: SIM115 (close)
            file = self.files[path]
        buffer, done = _bytes(values).data, 0
        while done < len(buffer):
            piece = buffer[done : done + PIECE]
            if len(buffer) > PIECE:
                _populate(values.data_ptr() + done, len(piece))
            count = os.preadv(file.fileno(), [piece], offset + done)
            if not count:
                raise BadCheckpoint(
                    f"{path.name} ends in the middle of a tensor",
                    where=str(path),
                    why="it was cut off while it was read",
                    do="copy or download the file again",
                )
            done += count

    def close(self) -> None:
        """Closes the files."""
        for file in self.files.values():
            file.close()


def _meta(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    return tensor.view(-1).view(torch.uint8).numpy()


def _at(tensor: torch.Tensor, index: Index = None) -> torch.Tensor:
    return tensor if index is None else tensor[index]


def _read_elementwise(op, args, kwargs, index: Index = None) -> torch.Tensor:
    """Returns an elementwise operator's result; casts of what is on disk are read in pieces."""
    read_as = args[0].root.read_as if args[0].sliced else None
    if read_as is not None and op is aten._to_copy.default and kwargs.keys() == {"dtype"}:
        return read_as(index, kwargs["dtype"])
    return op(args[0].read(index), *args[1:], **kwargs)


def _compute(op, args, kwargs) -> list[torch.Tensor]:
    return tree_flatten(op(*read_all(args), **read_all(kwargs)))[0]


def _run_mutable(op, args, kwargs):
    """Runs an operator that writes to its arguments.

    First the targets are read once, as a whole, and so are tensors to be computed from the values
    before the write.
    """
    arguments = zip((a.name for a in op._schema.arguments), args)
    arguments = dict(arguments) | kwargs
    targets = [arguments.get(a.name) for a in op._schema.arguments if a.is_write]
    written = [x for x in tree_leaves(targets) if isinstance(x, Deferred)]
    memory = lambda tensor: tensor.untyped_storage().data_ptr()
    for target in written:
        root = target.root
        for reader in (ref() for ref in root.readers):
            if reader is not None:
                reader.settle()
        root.readers.clear()
        Node.forget()
        if memory(root.settle()) != memory(target.read()):
            raise Unsupported(
                f"the loader writes to a part of a weight ({op})",
                why="the parts of a weight that is taken apart are read one by one",
                do="load it with transformers, then anyjax.from_torch(module)",
            )
    out = op(*read_all(args), **read_all(kwargs))
    return written[0] if written and isinstance(out, torch.Tensor) else out
