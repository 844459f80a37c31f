"""A state dict as layers: which arrays belong together, and of what kind their layer is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tojax.flax.matching.layer import Tensor, Torch
from tojax.flax.matching.names import split
from tojax.flax.matching.stored import Stored

_ROLES = {"weight": "weight", "bias": "bias", "running_mean": "mean", "running_var": "var"}
_RECURRENT = re.compile(r"(weight|bias)_(ih|hh)(?:_l(\d+)(_reverse)?)?")
_KINDS = {
    r"Linear|NonDynamicallyQuantizableLinear|LazyLinear": "linear",
    r"Conv1D": "matrix",  # of transformers: y = x @ weight
    r"(Lazy)?Conv[123]d": "conv",
    r"(Lazy)?ConvTranspose[123]d": "convt",
    r"Embedding|EmbeddingBag": "embed",
}
_GATES = {4: "lstm", 3: "gru", 1: "rnn"}


def layers(stored: Stored, fused: bool) -> list[Torch]:
    """The layers of the torch side, in its order.

    Args:
      stored: the named arrays, and their module if there is one.
      fused: whether the flax side has queries, keys and values in one array, as ``in_proj_weight``
        of torch's attention does.
    """
    modules = dict(stored.module.named_modules()) if stored.module is not None else {}
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in stored.tensors.items():
        path, _, leaf = name.rpartition(".")
        groups.setdefault(path, {})[leaf] = tensor
    found = [
        layer
        for path, leaves in groups.items()
        for layer in _of_group(path, leaves, modules.get(path), fused)
    ]
    return found if modules else _in_first(found)


def _in_first(layers: list[Torch]) -> list[Torch]:
    """Without modules: where every bias that tells is as long as a weight's rows, the weights are
    those of transformers' Conv1D, square ones as well.
    """
    biased = [x.tensors for x in layers if {"weight", "bias"} <= set(x.tensors)]
    shapes = [(x["weight"].shape, x["bias"].shape) for x in biased]
    told = [bias == weight[1:] for weight, bias in shapes if len(weight) == 2 == len(set(weight))]
    if not told or not all(told):
        return layers
    plain = lambda x: x.kind == "" and "bias" in x.tensors and len(x.tensors["weight"].shape) == 2
    return [replace(x, kind="matrix") if plain(x) else x for x in layers]


def _of_group(path: str, leaves: dict[str, Tensor], module: Any, fused: bool) -> Iterable[Torch]:
    cells: dict[str, dict[str, Tensor]] = {}
    known: dict[str, Tensor] = {}
    packed: dict[str, Tensor] = {}
    apart: dict[str, Tensor] = {}
    for leaf, tensor in leaves.items():
        if match := _RECURRENT.fullmatch(leaf):
            inside = _cell(path, match, any(x.endswith("_reverse") for x in leaves))
            cells.setdefault(inside, {})[f"{match[1]}_{match[2]}"] = tensor
        elif leaf in _ROLES:
            known[_ROLES[leaf]] = tensor
        elif leaf in ("in_proj_weight", "in_proj_bias"):
            packed[leaf.removeprefix("in_proj_")] = tensor
        elif re.fullmatch(r"[qkv]_proj_weight", leaf):
            apart[leaf[0]] = tensor
        else:
            yield Torch(_join(path, leaf), "raw", {"weight": tensor}, None)
    for inside, tensors in cells.items():
        weight = tensors.get("weight_hh")
        kind = _GATES.get(weight.shape[0] // weight.shape[1], "") if weight else ""
        yield Torch(inside, kind, tensors, module)
    if known:
        layer = Torch(path, _kind(path, known, module), known, module)
        thirds = split(path.rpartition(".")[2])[0] == "qkv" and not fused
        yield from _thirds(path.rpartition(".")[0], layer) if thirds else [layer]
    for i, (letter, weight) in enumerate(apart.items()):  # of other widths; the bias is packed
        bias = {role: _slice(t, i, 0) for role, t in packed.items()}
        yield Torch(_join(path, f"{letter}_proj"), "linear", {"weight": weight, **bias}, None)
    if packed and not apart:
        whole = Torch(_join(path, "in_proj"), "linear", packed, None)
        yield from [whole] if fused else _thirds(path, whole)


def _join(path: str, leaf: str) -> str:
    return f"{path}.{leaf}" if path else leaf


def _cell(path: str, match: re.Match, both_ways: bool) -> str:
    level = path if match[3] is None else f"{path}.{match[3]}" if path else match[3]
    return f"{level}.{'backward' if match[4] else 'forward'}" if both_ways else level


def _kind(path: str, tensors: Mapping[str, Tensor], module: Any) -> str:
    """By class; by the names and shapes that only one kind has; else empty."""
    if module is not None:
        for cls in type(module).__mro__:
            for pattern, kind in _KINDS.items():
                if re.fullmatch(pattern, cls.__name__):
                    return kind
    if "mean" in tensors:
        return "batchnorm"
    weight = tensors.get("weight")
    if weight is not None and len(weight.shape) == 1:
        return "norm"
    if module is not None or weight is None:
        return "raw"
    word = split(path.rpartition(".")[2])[0]
    return {"embed": "embed", "position": "embed", "head": "linear"}.get(word, "")


def _thirds(path: str, packed: Torch) -> Iterable[Torch]:
    """Queries, keys and values of one packed projection."""
    weight, bias = packed.tensors.get("weight"), packed.tensors.get("bias")
    unlike = weight and bias and bias.shape == weight.shape[1:] != weight.shape[:1]
    kind = "matrix" if unlike and packed.kind == "" else packed.kind or "linear"
    axis = -1 if kind == "matrix" else 0
    if any(t.shape[axis] % 3 for t in packed.tensors.values()):
        yield packed
        return
    for i, letter in enumerate("qkv"):
        parts = {
            role: _slice(t, i, axis if role == "weight" else 0)
            for role, t in packed.tensors.items()
        }
        yield Torch(_join(path, f"{letter}_proj"), kind, parts, None)


def _slice(tensor: Tensor, i: int, axis: int) -> Tensor:
    size = tensor.shape[axis] // 3
    shape = list(tensor.shape)
    shape[axis] = size
    label = f"{tensor.label}[{i * size}:{(i + 1) * size}]"
    take = lambda: np.split(tensor.read(), 3, axis)[i]
    return Tensor(label, tensor.sources, tuple(shape), take)


def joined(layers: list[Torch]) -> list[Torch]:
    """The same layers with separate queries, keys and values made one projection."""
    siblings: dict[str, dict[str, Torch]] = {}
    for layer in layers:
        parent, _, leaf = layer.path.rpartition(".")
        siblings.setdefault(parent, {})[split(leaf)[0]] = layer
    done = list(layers)
    for parent, found in siblings.items():
        three = [found.get(word) for word in ("query", "key", "value")]
        whole = [x for x in three if x is not None]
        if len(whole) != 3 or len({frozenset(x.tensors) for x in whole}) > 1:
            continue
        parts = {role: [x.tensors[role] for x in whole] for role in whole[0].tensors}
        tensors = {role: _concatenated(each) for role, each in parts.items()}
        done = [x for x in done if x not in whole]
        done.append(Torch(_join(parent, "qkv"), whole[0].kind, tensors, None))
    return done


def _concatenated(parts: list[Tensor]) -> Tensor:
    shape = (sum(p.shape[0] for p in parts), *parts[0].shape[1:])
    sources = tuple(s for p in parts for s in p.sources)
    label = " + ".join(p.label for p in parts)
    return Tensor(label, sources, shape, lambda: np.concatenate([p.read() for p in parts]))
