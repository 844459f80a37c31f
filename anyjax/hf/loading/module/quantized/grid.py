"""A matrix of small numbers with scales, the common form of all quantized checkpoints."""

from __future__ import annotations

from typing import NamedTuple

import torch

from anyjax.errors import BadCheckpoint
from anyjax.transforms.numbers import LOADED


class Grid(NamedTuple):
    """A matrix of small numbers.

    Attributes:
      scheme: one of ``LOADED``.
      numbers: [rows, row], uint8 or int8: codes of 4 bits, integers, or the bytes of fp8.
      scale: [rows, groups].
      zero: the numbers that stand for zero, uint8 [rows, groups]; None where it is 0.
      groups: the group of each column; None for groups of one size, one after the other.
    """

    scheme: str
    numbers: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor | None = None
    groups: torch.Tensor | None = None

    @property
    def block(self) -> int:
        """The number of neighbours in a row that share a scale; 0 for groups of other columns."""
        row, groups = self.numbers.shape[1], self.scale.shape[1]
        even = self.groups is None and not row % groups
        block = row // groups if even else 0
        return 0 if block % LOADED[self.scheme].per else block

    def checked(self) -> Grid:
        """Returns itself.

        Raises:
          ValueError: the shapes of scales or zeros do not fit the numbers.
        """
        (rows, row), (tall, count) = self.numbers.shape, self.scale.shape
        needed = count if self.groups is None else int(self.groups.max()) + 1
        if tall != rows or needed != count or (self.groups is None and row % count):
            raise ValueError(f"scales {tall} x {count} for numbers {rows} x {row}")
        if self.zero is not None and self.zero.shape != self.scale.shape:
            raise ValueError(f"zeros {[*self.zero.shape]} for scales {[*self.scale.shape]}")
        return self

    def centred(self) -> Grid:
        """Returns the grid with signed integers, if all zeros are in the middle of the range."""
        middle = {"uint4": 8, "uint8": 128}.get(self.scheme)
        if self.zero is None or not bool((self.zero == middle).all()):
            return self
        bits = LOADED[self.scheme].bits
        signed = (self.numbers.to(torch.int16) - middle).to(torch.int8)
        numbers = signed & 15 if bits == 4 else signed
        return Grid(f"int{bits}", numbers, self.scale, None, self.groups)

    def dense(self) -> torch.Tensor:
        """Returns the float32 matrix."""
        kind, row = LOADED[self.scheme], self.numbers.shape[1]
        if kind.codes:
            values = torch.tensor(kind.codes)[self.numbers.long()]
        elif self.scheme == "fp8":
            values = self.numbers.view(torch.float8_e4m3fn).float()
        elif self.scheme == "int4":
            values = ((self.numbers.int() ^ 8) - 8).float()
        else:
            values = self.numbers.float()
        groups = self.groups
        if groups is None:
            groups = torch.arange(row) // (row // self.scale.shape[1])
        if self.zero is not None:
            values = values - self.zero.float()[:, groups]
        return values * self.scale.float()[:, groups]

    def packed(self) -> list[torch.Tensor]:
        """Returns the arrays of ``transforms.packed.Packed``, transposed: numbers, scale, and zero
        if there is one.
        """
        kind, numbers = LOADED[self.scheme], self.numbers.T
        if kind.bits == 4:
            low, high = (numbers[i::2].to(torch.uint8) & 15 for i in (0, 1))
            numbers = low | (high << 4)
        zero = [] if self.zero is None else [self.zero.T.contiguous()]
        return [numbers.contiguous(), self.scale.T.contiguous(), *zero]


def fp8_bytes(values: torch.Tensor, name: str) -> torch.Tensor:
    """Returns the bytes of fp8 numbers.

    Raises:
      BadCheckpoint: a number is NaN.
    """
    raw = values.view(torch.uint8)
    if bool(((raw & 127) == 127).any()):
        raise BadCheckpoint(f"{name} holds a NaN", why="no weight is one", do="restore the file")
    return raw


def unpacked_words(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """Unpacks int32 [n, m] to uint8 [n, m * 32 / bits]: the first number is in the low bits."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    out = (packed[:, :, None] >> shifts) & ((1 << bits) - 1)
    return out.to(torch.uint8).reshape(len(packed), -1)
