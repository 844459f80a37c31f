"""The layouts in which arrays of a torch layer fill a flax layer's variables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np

from anyjax.flax.matching import recurrent, torch_order
from anyjax.flax.matching.layer import AS_IS, Choice, Fill, Flax, Layout, Slot, Tensor, Torch


class Maps(NamedTuple):
    """Possible channel counts of feature maps that a matrix takes flattened, or makes."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


NO_MAPS = Maps()
_DENSE = ("linear", "matrix", "")


def choices(flax: Flax, torch: Torch, maps: Maps = NO_MAPS) -> list[Choice]:
    """Returns the choices of the torch layer for the flax layer by kind and shape, likeliest first.

    Args:
      flax, torch: the layers.
      maps: possible channel counts of feature maps that are flattened around this layer.
    """
    if (extra := torch.tensors.keys() - flax.slots.keys()) and extra <= torch.tied:
        rest = {role: t for role, t in torch.tensors.items() if role not in extra}
        reduced = choices(flax, replace(torch, tensors=rest), maps)
        return [Choice(torch, c.fills, c.sure) for c in reduced]
    if _size(flax.slots) != _size(torch.tensors) and flax.kind not in recurrent.GATES:
        return []
    if flax.kind in ("lstm", "gru", "rnn") or torch.kind in ("lstm", "gru", "rnn"):
        fills = recurrent.fills(flax, torch) if flax.kind == torch.kind else None
        return [Choice(torch, tuple(fills))] if fills else []
    needed = {role for role, slot in flax.slots.items() if slot.needed}
    if not needed <= torch.tensors.keys() or torch.tensors.keys() - flax.slots.keys():
        return []
    vectors = []
    for role, tensor in torch.tensors.items():
        if role != "weight":
            layout = _vector(tensor.shape, flax.slots[role].shape)
            if layout is None:
                return []
            vectors.append(Fill(flax.slots[role], tensor, layout))
    if "weight" not in torch.tensors:
        return [Choice(torch, tuple(vectors))] if vectors and "weight" not in flax.slots else []
    slot, tensor = flax.slots["weight"], torch.tensors["weight"]
    layouts, sure = _weight_layouts(flax, slot, torch, tensor, maps.before)
    fitting = [Choice(torch, (Fill(slot, tensor, x), *vectors), sure) for x in layouts]
    if len(slot.shape) != 2 or not maps.after:
        return fitting
    unflattened = [_unflattened(c, n) for c in fitting for n in maps.after]
    return [Choice(c.torch, c.fills, False) for c in fitting + unflattened]


def _size(arrays: Mapping[str, Slot] | Mapping[str, Tensor]) -> int:
    return prod(arrays["weight"].shape) if "weight" in arrays else 0


def _vector(have: tuple[int, ...], want: tuple[int, ...]) -> Layout | None:
    if have == want:
        return AS_IS
    same = prod(have) == prod(want) and min(len(have), len(want)) <= 1
    return Layout("reshaped", lambda a: a.reshape(want)) if same else None


def _weight_layouts(
    flax: Flax, slot: Slot, torch: Torch, tensor: Tensor, channels: Iterable[int]
) -> tuple[list[Layout], bool]:
    """Returns the layouts, and whether the first of them is right if nothing else decides."""
    have, want = tensor.shape, slot.shape
    if flax.facts.get("torch_order") and flax.kind not in ("norm", "batchnorm"):
        return torch_order.weight_layouts(flax, torch, have, want), True
    both = {flax.kind, torch.kind}
    if both & {"norm", "batchnorm"}:
        if not both <= {"norm", "batchnorm", "raw", ""} or both == {"norm", "batchnorm"}:
            return [], True
        vector = _vector(have, want)
        return ([vector] if vector else list(permutations(have, want))), True
    if torch.kind == "embed" and flax.kind == "raw" and have == want:  # rows come first everywhere
        return [AS_IS], True
    if "raw" in both:
        layouts = [*permutations(have, want), *_reshapes(have, want)]
        return layouts, len(layouts) == 1 or both == {"raw"}
    if flax.kind == "embed":
        return ([AS_IS] if torch.kind in ("embed", "") and have == want else []), True
    if len(have) == 2 and torch.kind in _DENSE and flax.kind in ("dense", "general", ""):
        layouts, sure = _dense_layouts(flax, torch, have, want, channels)
        if layouts or flax.kind == "dense":
            return layouts, sure
        layouts = [*_reshapes(have, want)]
        return layouts, len(layouts) == 1
    if flax.kind == "dense" and torch.kind in ("conv", ""):  # a convolution of one place
        ones = prod(have[2:]) == 1 and (have[1], have[0]) == want
        return [Layout("one place, transposed", lambda a: a.reshape(have[:2]).T)] * ones, True
    if len(have) < 3 and flax.kind in ("conv", ""):
        ones = torch.kind in ("linear", "") and (*[1] * (len(want) - 2), *have[::-1]) == want
        return [Layout("transposed, one place", lambda a: a.T.reshape(want))] * ones, True
    return _convolution_layouts(flax, torch, have, want)


def _dense_layouts(
    flax: Flax, torch: Torch, have: tuple, want: tuple, channels: Iterable[int]
) -> tuple[list[Layout], bool]:
    if torch.kind == "matrix":  # inputs first, as flax has it
        fits = _splits(have, want)
        return ([_reshaped("as it is", lambda a: a, have, want)] if fits else []), True
    layouts = []
    if _splits(have[::-1], want):
        layouts.append(_reshaped("transposed", np.transpose, have[::-1], want))
    if torch.kind in ("linear", "") and len(want) == 2 and layouts:
        for count in channels:
            if have[1] % count == 0 and 1 < count < have[1]:
                layouts.append(_flattened(count, have[1] // count))
    sure = len(layouts) == 1
    if torch.kind == "" and have == want:  # transformers' Conv1D has its inputs first
        bias = torch.tensors.get("bias")
        if not layouts or (bias is not None and have[0] != have[1] and bias.shape == have[1:]):
            return [AS_IS], True
    return layouts, sure


def _flattened(channels: int, places: int) -> Layout:
    def take(a: np.ndarray) -> np.ndarray:
        return a.reshape(-1, channels, places).transpose(2, 1, 0).reshape(-1, a.shape[0])

    return Layout(f"transposed, rows of {channels} channels last", take)


def _unflattened(choice: Choice, channels: int) -> Choice:
    """Returns the choice with its outputs in the order of a map with channels last."""

    def reordered(take: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        def take_reordered(a: np.ndarray) -> np.ndarray:
            b = take(a)
            return b.reshape(*b.shape[:-1], channels, -1).swapaxes(-1, -2).reshape(b.shape)

        return take_reordered

    name = f"columns of {channels} channels last"
    fills = [
        Fill(f.slot, f.tensor, Layout(f"{f.layout.name}, {name}", reordered(f.layout.take)))
        for f in choice.fills
    ]
    return Choice(choice.torch, tuple(fills), False)


def _reshaped(
    name: str, take: Callable[[np.ndarray], np.ndarray], have: tuple, want: tuple
) -> Layout:
    if have == want:
        return Layout(name, take)
    return Layout(f"{name}, reshaped", lambda a: take(a).reshape(want))


def _splits(matrix: tuple[int, ...], want: tuple[int, ...]) -> bool:
    """Returns True if each of a matrix's two axes can become some of the wanted axes."""
    return any(
        (prod(want[:i]), prod(want[i:])) == tuple(matrix) for i in range(1, max(2, len(want)))
    )


def _convolution_layouts(
    flax: Flax, torch: Torch, have: tuple, want: tuple
) -> tuple[list[Layout], bool]:
    spatial = tuple(range(2, len(have)))
    if len(have) != len(want) or len(have) < 3:
        return [], True
    layouts = []
    convolutions = torch.kind in ("conv", "") and flax.kind in ("conv", "")
    if convolutions and want == (*have[2:], have[1], have[0]):
        layouts.append(Layout("spatial axes first", lambda a: a.transpose(*spatial, 1, 0)))
    if torch.kind in ("convt", "") and flax.kind in ("convt", ""):
        swapped = flax.facts.get("transpose_kernel")
        if swapped is not True and want == (*have[2:], *have[:2]):
            flip = lambda a: np.flip(a.transpose(*spatial, 0, 1), tuple(range(len(spatial))))
            layouts.append(Layout("spatial axes first, flipped", flip))
        if swapped is not False and want == (*have[2:], have[1], have[0]):
            outputs_before = lambda a: a.transpose(*spatial, 1, 0)
            layouts.append(Layout("spatial axes first, outputs before", outputs_before))
    return layouts, len(layouts) == 1


def permutations(have: tuple[int, ...], want: tuple[int, ...]) -> Iterator[Layout]:
    """Yields the orders of axes that give the wanted shape, the identity first; axes of length one
    are dropped and added as needed.
    """
    if len(have) > 5 or prod(have) != prod(want):
        return
    core, target = _squeezed(have), _squeezed(want)
    if len(core) != len(target):
        return
    for axes in itertools.permutations(range(len(core))):
        if tuple(core[i] for i in axes) == target:
            identity = axes == tuple(range(len(core)))
            name = "as it is" if identity else "transposed" if len(core) == 2 else f"axes {axes}"
            name += "" if identity and have == want else "" if len(have) == 2 else ", reshaped"
            yield Layout(name, _transposed(core, axes, want))


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _reshapes(have: tuple[int, ...], want: tuple[int, ...]) -> Iterator[Layout]:
    """Yields layouts that split one axis of a matrix in two, for attention heads."""
    target = _squeezed(want)
    if len(have) != 2 or len(target) != 3:
        return
    for undivided, (i, j) in itertools.product((1, 0), ((1, 2), (0, 2), (0, 1))):
        k = 3 - i - j
        if (have[1 - undivided], have[undivided]) != (target[i] * target[j], target[k]):
            continue
        divided = (target[i], target[j])
        core = (*divided, target[k]) if undivided else (target[k], *divided)
        order = (i, j, k) if undivided else (k, i, j)
        axes = tuple(order.index(n) for n in range(3))
        yield Layout(f"reshaped to {core}, axes {axes}", _transposed(core, axes, want))


def _transposed(core: tuple, axes: tuple, want: tuple) -> Callable[[np.ndarray], np.ndarray]:
    return lambda a: a.reshape(core).transpose(axes).reshape(want)
