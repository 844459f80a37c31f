"""The layers of a state dict: which arrays belong together, and the kind of each layer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from anyjax.flax.matching.layer import Tensor, Torch
from anyjax.flax.matching.names import word_and_number
from anyjax.flax.matching.stored import Stored

if TYPE_CHECKING:
    import torch

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
    """Returns the layers of the torch side, in its order.

    Args:
      stored: the named arrays, and their module if there is one.
      fused: whether the flax side has queries, keys and values in one array, as torch's attention
        has in ``in_proj_weight``.
    """
    modules = dict(stored.module.named_modules()) if stored.module is not None else {}
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in stored.tensors.items():
        path, _, leaf = name.rpartition(".")
        groups.setdefault(path, {})[leaf] = tensor
    layers = [
        layer
        for path, leaves in groups.items()
        for layer in _of_group(path, leaves, modules.get(path), fused)
    ]
    return _with_tied_roles(layers, stored.module) if modules else _with_conv1d_kinds(layers)


def _with_tied_roles(layers: list[Torch], module: torch.nn.Module) -> list[Torch]:
    """Notes which arrays lie in the memory of an earlier layer's, such as a head's weight."""
    addresses = {name: x.data_ptr() for name, x in module.state_dict().items() if x.numel()}
    first: dict[int, Torch] = {}
    noted = []
    for layer in layers:
        labels = {role: t.label for role, t in layer.tensors.items() if t.label in addresses}
        homes = {r: first.setdefault(addresses[label], layer) for r, label in labels.items()}
        tied = frozenset(role for role, home in homes.items() if home is not layer)
        noted.append(replace(layer, tied=tied))
    return noted


def _with_conv1d_kinds(layers: list[Torch]) -> list[Torch]:
    """Recognizes transformers' Conv1D without modules: if all biases of matrices that are not
    square are as long as the second axis, all matrices with a bias are such.
    """
    biased = [x.tensors for x in layers if {"weight", "bias"} <= set(x.tensors)]
    shapes = [(x["weight"].shape, x["bias"].shape) for x in biased]
    outputs_last = [b == w[1:] for w, b in shapes if len(w) == 2 == len(set(w))]
    if not outputs_last or not all(outputs_last):
        return layers
    is_matrix = lambda x: (
        x.kind == "" and "bias" in x.tensors and len(x.tensors["weight"].shape) == 2
    )
    return [replace(x, kind="matrix") if is_matrix(x) else x for x in layers]


def _of_group(path: str, leaves: dict[str, Tensor], module: object, fused: bool) -> Iterable[Torch]:
    """Yields the layers of a module's own arrays."""
    cells: dict[str, dict[str, Tensor]] = {}
    by_role: dict[str, Tensor] = {}
    packed: dict[str, Tensor] = {}
    separate: dict[str, Tensor] = {}
    for leaf, tensor in leaves.items():
        if match := _RECURRENT.fullmatch(leaf):
            cell = _cell(path, match, any(x.endswith("_reverse") for x in leaves))
            cells.setdefault(cell, {})[f"{match[1]}_{match[2]}"] = tensor
        elif leaf in _ROLES:
            by_role[_ROLES[leaf]] = tensor
        elif leaf in ("in_proj_weight", "in_proj_bias"):
            packed[leaf.removeprefix("in_proj_")] = tensor
        elif re.fullmatch(r"[qkv]_proj_weight", leaf):
            separate[leaf[0]] = tensor
        else:
            yield Torch(_join(path, leaf), "raw", {"weight": tensor}, None)
    for cell, tensors in cells.items():
        weight = tensors.get("weight_hh")
        kind = _GATES.get(weight.shape[0] // weight.shape[1], "") if weight else ""
        yield Torch(cell, kind, tensors, module)
    if by_role:
        layer = Torch(path, _kind(path, by_role, module), by_role, module)
        thirds = word_and_number(path.rpartition(".")[2])[0] == "qkv" and not fused
        yield from _thirds(path.rpartition(".")[0], layer) if thirds else [layer]
    for i, (letter, weight) in enumerate(separate.items()):  # of unequal widths; packed bias
        bias = {role: _slice(t, i, 0) for role, t in packed.items()}
        yield Torch(_join(path, f"{letter}_proj"), "linear", {"weight": weight, **bias}, None)
    if packed and not separate:
        in_proj = Torch(_join(path, "in_proj"), "linear", packed, None)
        yield from [in_proj] if fused else _thirds(path, in_proj)


def _join(path: str, leaf: str) -> str:
    return f"{path}.{leaf}" if path else leaf


def _cell(path: str, match: re.Match, both_ways: bool) -> str:
    level = path if match[3] is None else f"{path}.{match[3]}" if path else match[3]
    return f"{level}.{'backward' if match[4] else 'forward'}" if both_ways else level


def _kind(path: str, tensors: Mapping[str, Tensor], module: object) -> str:
    """Returns the kind by class, or by unambiguous names and shapes; else an empty string."""
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
    word = word_and_number(path.rpartition(".")[2])[0]
    return {"embed": "embed", "position": "embed", "head": "linear"}.get(word, "")


def _thirds(path: str, packed: Torch) -> Iterable[Torch]:
    """Splits a packed projection into queries, keys and values."""
    weight, bias = packed.tensors.get("weight"), packed.tensors.get("bias")
    outputs_last = weight and bias and bias.shape == weight.shape[1:] != weight.shape[:1]
    kind = "matrix" if outputs_last and packed.kind == "" else packed.kind or "linear"
    axis = -1 if kind == "matrix" else 0
    if any(t.shape[axis] % 3 for t in packed.tensors.values()):
        yield packed
        return
    for i, letter in enumerate("qkv"):
        slices = {
            role: _slice(t, i, axis if role == "weight" else 0)
            for role, t in packed.tensors.items()
        }
        yield Torch(_join(path, f"{letter}_proj"), kind, slices, None)


def _slice(tensor: Tensor, i: int, axis: int) -> Tensor:
    size = tensor.shape[axis] // 3
    shape = list(tensor.shape)
    shape[axis] = size
    label = f"{tensor.label}[{i * size}:{(i + 1) * size}]"
    take = lambda: np.split(tensor.read(), 3, axis)[i]
    return Tensor(label, tensor.sources, tuple(shape), take)


def with_fused_qkv(layers: list[Torch]) -> list[Torch]:
    """Fuses separate queries, keys and values into one projection."""
    siblings: dict[str, dict[str, Torch]] = {}
    for layer in layers:
        parent, _, leaf = layer.path.rpartition(".")
        siblings.setdefault(parent, {})[word_and_number(leaf)[0]] = layer
    fused = list(layers)
    for parent, by_word in siblings.items():
        qkv = [by_word[word] for word in ("query", "key", "value") if word in by_word]
        if len(qkv) != 3 or len({frozenset(x.tensors) for x in qkv}) > 1:
            continue
        by_role = {role: [x.tensors[role] for x in qkv] for role in qkv[0].tensors}
        tensors = {role: _concatenate(of_role) for role, of_role in by_role.items()}
        fused = [x for x in fused if x not in qkv]
        fused.append(Torch(_join(parent, "qkv"), qkv[0].kind, tensors, None))
    return fused


def _concatenate(tensors: list[Tensor]) -> Tensor:
    shape = (sum(t.shape[0] for t in tensors), *tensors[0].shape[1:])
    sources = tuple(s for t in tensors for s in t.sources)
    label = " + ".join(t.label for t in tensors)
    return Tensor(label, sources, shape, lambda: np.concatenate([t.read() for t in tensors]))
