"""Layouts of layers whose arrays have torch's order of axes: Equinox's, and state dicts."""

from __future__ import annotations

from math import prod

import numpy as np

from anyjax.flax.matching.layer import AS_IS, Fill, Flax, Layout, Tensor, Torch


def weight_layouts(flax: Flax, torch: Torch, have: tuple, want: tuple) -> list[Layout]:
    """Returns the layouts in which torch's weight fits, by the kinds of both layers."""
    pair = (flax.kind, torch.kind)
    same = [AS_IS] if have == want else []
    if flax.kind == "":  # a state dict
        return same
    if flax.kind == "dense" and torch.kind == "matrix":
        return [Layout("transposed", np.transpose)] if have[::-1] == want else []
    if flax.kind == "convt" and torch.kind in ("convt", ""):
        return _transposed_convolution(flax.facts["groups"], have, want)
    if pair in (("dense", "conv"), ("dense", ""), ("conv", "linear"), ("conv", "")):
        ones = not same and prod(have[2:]) == prod(want[2:]) == 1 and have[:2] == want[:2]
        return [Layout("one place", lambda a: a.reshape(want))] if ones else same
    alike = {"dense": ("linear",), "conv": ("conv",), "embed": ("embed", "")}
    return same if torch.kind in (*alike.get(flax.kind, ()), "raw") else []


def _transposed_convolution(groups: int, have: tuple, want: tuple) -> list[Layout]:
    """torch has inputs first and the kernel of the convolution that it transposes."""
    inputs, outputs, *kernel = have
    if (outputs * groups, inputs // groups, *kernel) != want:
        return []

    def take(a: np.ndarray) -> np.ndarray:
        by_group = a.reshape(groups, inputs // groups, outputs, *kernel).swapaxes(1, 2)
        return np.flip(by_group.reshape(want), tuple(range(2, len(want))))

    return [Layout("outputs before, flipped", take)]


def cell_fills(flax: Flax, torch: Torch) -> list[Fill] | None:
    """Returns the fills of a recurrent cell of Equinox, None if it does not fit: gates in torch's
    order, one bias that is the sum of torch's, and a GRU's second bias of the new gate.
    """
    names = {"weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if "bias" in flax.slots else ())}
    if not names <= torch.tensors.keys():
        return None
    fills = [Fill(flax.slots[x], torch.tensors[x], AS_IS) for x in ("weight_ih", "weight_hh")]
    if "bias" in flax.slots:
        fills += _bias_fills(flax, torch)
    fit = all(tuple(x.tensor.shape) == tuple(x.slot.shape) for x in fills)
    return fills if fit else None


def _bias_fills(flax: Flax, torch: Torch) -> list[Fill]:
    inner, hidden = torch.tensors["bias_ih"], torch.tensors["bias_hh"]
    rows = hidden.shape[0]
    summed = rows * 2 // 3 if flax.kind == "gru" else rows  # the new gate's stay apart

    def read() -> np.ndarray:
        sums = inner.read() + hidden.read()
        return np.concatenate([sums[:summed], inner.read()[summed:]])

    label, sources = f"{inner.label} + {hidden.label}", inner.sources + hidden.sources
    fills = [Fill(flax.slots["bias"], Tensor(label, sources, (rows,), read), AS_IS)]
    if flax.kind == "gru":
        label = f"{hidden.label}[{summed}:]"
        new = Tensor(label, hidden.sources, (rows - summed,), lambda: hidden.read()[summed:])
        fills.append(Fill(flax.slots["bias_n"], new, AS_IS))
    return fills
