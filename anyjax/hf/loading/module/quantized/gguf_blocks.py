"""The blocks of GGUF files as grids of small numbers, without rounding again.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, and the gguf package's quants.py.
The functions below take uint8 [rows, blocks, bytes of a block].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from anyjax.hf.loading.decide import Decision
from anyjax.hf.loading.find.checkpoint import check_layers
from anyjax.hf.loading.module.deferred import Deferred
from anyjax.hf.loading.module.quantized.grid import Grid

if TYPE_CHECKING:
    from gguf import ReaderTensor


def half(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """Returns the two bytes at this place as float16 [rows, blocks]."""
    return blocks[..., at : at + 2].contiguous().view(torch.float16)[..., 0]


def nibbles(stored: torch.Tensor) -> torch.Tensor:
    """Returns numbers of 4 bits: the low bits of all bytes, then the high bits."""
    return torch.cat((stored & 15, stored >> 4), -1)


def flat(numbers: torch.Tensor) -> torch.Tensor:
    """Returns the numbers as [rows, columns]."""
    return numbers.reshape(len(numbers), -1)


def q8_0(blocks: torch.Tensor) -> Grid:
    """Reads 32 integers of 8 bits and a scale."""
    return Grid("int8", flat(blocks[..., 2:]).view(torch.int8), half(blocks, 0))


def q4_0(blocks: torch.Tensor) -> Grid:
    """Reads 32 integers of 4 bits, where 8 is zero, and a scale."""
    return Grid("int4", flat(nibbles(blocks[..., 2:])) ^ 8, half(blocks, 0))


def q5_0(blocks: torch.Tensor) -> Grid:
    """Reads 32 integers of 5 bits, where 16 is zero; their high bits are stored apart."""
    bits = blocks[..., 2:6, None] >> torch.arange(8, dtype=torch.uint8) & 1
    numbers = nibbles(blocks[..., 6:]) | bits.flatten(-2) << 4
    return Grid("int8", (flat(numbers).to(torch.int16) - 16).to(torch.int8), half(blocks, 0))


def q6_k(blocks: torch.Tensor) -> Grid:
    """Reads 256 integers of 6 bits, where 32 is zero, with a scale for every 16.

    Their high bits are stored apart.
    """
    low = nibbles(blocks[..., :128].unflatten(-1, (2, 64))).unflatten(-1, (4, 32))
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8)[:, None]
    high = blocks[..., 128:192].unflatten(-1, (2, 1, 32)) >> shifts & 3
    numbers = (flat(low | high << 4).to(torch.int16) - 32).to(torch.int8)
    scale = half(blocks, 208)[..., None].float() * blocks[..., 192:208].view(torch.int8).float()
    return Grid("int8", numbers, flat(scale))


KINDS: dict[str, tuple[Callable[[torch.Tensor], Grid], int]] = {  # with the bytes of a block
    "Q8_0": (q8_0, 34),
    "Q4_0": (q4_0, 18),
    "Q5_0": (q5_0, 22),
    "Q6_K": (q6_k, 210),
}


def grid_of(kind: str, stored: np.ndarray) -> Grid | None:
    """Reads a matrix's blocks, uint8 [rows, bytes of a row]; None for kinds without a grid."""
    if kind not in KINDS or stored.ndim != 2:
        return None
    unpack, size = KINDS[kind]
    return unpack(torch.from_numpy(np.array(stored)).unflatten(1, (-1, size)))


def read_gguf(decision: Decision) -> tuple[Any, dict[str, torch.Tensor]]:
    """Reads a GGUF file by transformers' table of names and layouts, as (class, state dict).

    The gguf package unpacks the blocks; matrices that can stay packed are packed again.
    """
    from gguf import GGUFReader
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config, file = decision.config, decision.checkpoint.gguf
    assert file is not None, "checked by the caller"
    stored = GGUFReader(file).tensors
    check_layers(file, config.to_dict(), len(stored))
    skeleton = decision.skeleton()
    tensors = load_gguf_checkpoint(file, return_tensors=True, model_to_load=skeleton)
    return type(skeleton), packed_matrices(stored, tensors["tensors"])


def packed_matrices(
    stored: Iterable[ReaderTensor], tensors: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Returns the unpacked tensors of a file, with its matrices packed as they are stored.

    transformers may sort rows, transpose, split or add. A tensor is packed only if its rows are
    those of a matrix in the file, in any order.
    """
    result = dict(tensors)
    by_fingerprint: dict[tuple, list[str]] = {}
    for name, tensor in tensors.items():
        if tensor.ndim == 2 and tensor.dtype == torch.float32:
            by_fingerprint.setdefault(fingerprint(tensor), []).append(name)
    for matrix in stored:
        grid = grid_of(matrix.tensor_type.name, matrix.data)
        dense = None if grid is None else grid.dense()
        names = [] if dense is None else by_fingerprint.get(fingerprint(dense), [])
        for name in names:
            order = rows_in(dense, tensors[name])
            if grid is not None and order is not None:
                result[name] = deferred(Grid(grid.scheme, grid.numbers[order], grid.scale[order]))
    return result


def deferred(grid: Grid) -> Deferred:
    """Returns a float32 tensor that is computed when it is read."""
    like = torch.empty(grid.numbers.shape, dtype=torch.float32, device="meta")
    dense = lambda index=None: grid.dense() if index is None else grid.dense()[index]
    matrix = Deferred(like, dense, sliced=False)
    matrix.grid = lambda: grid
    return matrix


def fingerprint(matrix: torch.Tensor) -> tuple:
    """Returns a key that is equal for equal numbers in any order."""
    bits = matrix.contiguous().numpy().view(np.uint32)
    return tuple(matrix.shape), int(bits.sum(dtype=np.uint64))


def rows_in(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor | None:
    """Returns the rows of ``source`` that make ``target``; None if a row is not in ``source``."""
    positions = {row.tobytes(): i for i, row in enumerate(source.numpy())}
    order = [positions.get(row.tobytes(), -1) for row in target.contiguous().numpy()]
    return None if -1 in order else torch.tensor(order)
