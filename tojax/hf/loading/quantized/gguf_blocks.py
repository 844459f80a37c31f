"""The blocks of GGUF files as grids of small numbers, without rounding them again.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, and the gguf package's quants.py.
The functions below take uint8 [rows, blocks, bytes of a block].
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from tojax.hf.loading.deferred import Deferred
from tojax.hf.loading.quantized.grid import Grid


def half(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """float16 [rows, blocks]: the two bytes at this place."""
    return blocks[..., at : at + 2].contiguous().view(torch.float16)[..., 0]


def nibbles(stored: torch.Tensor) -> torch.Tensor:
    """Numbers of 4 bits: those in the low bits of all bytes, then those in the high ones."""
    return torch.cat((stored & 15, stored >> 4), -1)


def flat(numbers: torch.Tensor) -> torch.Tensor:
    """[rows, row]."""
    return numbers.reshape(len(numbers), -1)


def q8_0(blocks: torch.Tensor) -> Grid:
    """32 integers of 8 bits and a scale."""
    return Grid("int8", flat(blocks[..., 2:]).view(torch.int8), half(blocks, 0))


def q4_0(blocks: torch.Tensor) -> Grid:
    """32 integers of 4 bits, 8 of which is zero, and a scale."""
    return Grid("int4", flat(nibbles(blocks[..., 2:])) ^ 8, half(blocks, 0))


def q5_0(blocks: torch.Tensor) -> Grid:
    """32 integers of 5 bits, 16 of which is zero, their high bits apart."""
    bits = blocks[..., 2:6, None] >> torch.arange(8, dtype=torch.uint8) & 1
    numbers = nibbles(blocks[..., 6:]) | bits.flatten(-2) << 4
    return Grid("int8", (flat(numbers).to(torch.int16) - 16).to(torch.int8), half(blocks, 0))


def q6_k(blocks: torch.Tensor) -> Grid:
    """256 integers of 6 bits, 32 of which is zero, their high bits apart; each 16 have a scale."""
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
    """A matrix's blocks, uint8 [rows, bytes of a row]; None for kinds that have no grid."""
    if kind not in KINDS or stored.ndim != 2:
        return None
    read, size = KINDS[kind]
    return read(torch.from_numpy(np.array(stored)).unflatten(1, (-1, size)))


def kept(file: Path, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors that were unpacked from a file, its matrices as they lie there.

    transformers sorts rows, transposes, splits or adds on the way. Only what has the very numbers
    of a matrix in the file, row by row in any order, is that matrix.
    """
    from gguf import GGUFReader

    found = dict(tensors)
    alike: dict[tuple, list[str]] = {}
    for name, tensor in tensors.items():
        if tensor.ndim == 2 and tensor.dtype == torch.float32:
            alike.setdefault(mark(tensor), []).append(name)
    for stored in GGUFReader(file).tensors:
        grid = grid_of(stored.tensor_type.name, stored.data)
        dense = None if grid is None else grid.dense()
        names = [] if dense is None else alike.get(mark(dense), [])
        for name in names:
            order = rows_in(dense, tensors[name])
            if grid is not None and order is not None:
                found[name] = deferred(Grid(grid.scheme, grid.numbers[order], grid.scale[order]))
    return found


def deferred(grid: Grid) -> Deferred:
    """float32, computed when it is read."""
    like = torch.empty(grid.numbers.shape, dtype=torch.float32, device="meta")
    dense = lambda index=None: grid.dense() if index is None else grid.dense()[index]
    matrix = Deferred(like, dense, sliced=False)
    matrix.grid = lambda: grid
    return matrix


def mark(matrix: torch.Tensor) -> tuple:
    """The same for the same numbers in any order."""
    bits = matrix.contiguous().numpy().view(np.uint32)
    return tuple(matrix.shape), int(bits.sum(dtype=np.uint64))


def rows_in(source: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor | None:
    """The rows of ``source`` that ``wanted`` has, in its order; None where it is another matrix."""
    places = {row.tobytes(): i for i, row in enumerate(source.numpy())}
    order = [places.get(row.tobytes(), -1) for row in wanted.contiguous().numpy()]
    return None if -1 in order else torch.tensor(order)
