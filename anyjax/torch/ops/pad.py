"""Padding; torch lists the pads from the last axis on, and negative ones crop."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from anyjax.errors import Unsupported
from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops._operands import number

MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def pairs(self, pad) -> list[tuple[int, int]]:
    """(before, after) of every axis, the first axis first."""
    widths = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    return [(0, 0)] * (self.ndim - len(widths)) + widths[::-1]


@lowers(aten.constant_pad_nd)
def constant_pad_nd(self, pad, value):
    return lax.pad(self, number(value, self.dtype), [(*p, 0) for p in pairs(self, pad)])


def pad_with(mode: str):
    """A lowering for one of jnp's modes, which know no negative pads.

    torch reflects and replicates first and crops then; "circular" repeats the cropped array.
    """

    def lowering(self, pad, /):
        widths = pairs(self, pad)
        grow = lambda x: jnp.pad(x, [(max(a, 0), max(b, 0)) for a, b in widths], mode=mode)
        if min(pad, default=0) >= 0:
            return grow(self)
        crop = [(min(a, 0), min(b, 0), 0) for a, b in widths]
        shrink = lambda x: lax.pad(x, x.dtype.type(0), crop)
        return grow(shrink(self)) if mode == "wrap" else shrink(grow(self))

    return lowering


@lowers(aten.pad)
def pad(self, pad, mode, value):
    if mode == "constant":
        return constant_pad_nd(self, pad, 0 if value is None else value)
    if mode not in MODES:
        raise Unsupported(f"padding mode {mode!r}", do=f"use constant, {', '.join(MODES)}")
    return pad_with(MODES[mode])(self, pad)


reflect, replicate, wrap = map(pad_with, ("reflect", "edge", "wrap"))
table.update({aten._pad_circular: wrap})
for _n in (1, 2, 3):
    table.update({getattr(aten, f"reflection_pad{_n}d"): reflect})
    table.update({getattr(aten, f"replication_pad{_n}d"): replicate})


@lowers(aten.pad_sequence)
def pad_sequence(sequences, batch_first, padding_value, padding_side):
    """A row, since torch 2.10's own decomposition does not know padding_side."""
    length = max(x.shape[0] for x in sequences)

    def padded(x):
        missing = length - x.shape[0]
        ends = (missing, 0) if padding_side == "left" else (0, missing)
        value = number(padding_value, x.dtype)
        return lax.pad(x, value, [(*ends, 0)] + [(0, 0, 0)] * (x.ndim - 1))

    return jnp.stack([padded(x) for x in sequences], 0 if batch_first else 1)
