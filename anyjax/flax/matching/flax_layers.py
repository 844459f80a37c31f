"""The variables of a flax module as layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import flax.linen as nn
import jax
from flax import nnx, traverse_util
from flax.core import meta

from anyjax.flax.matching.layer import Flax, Slot, Torch
from anyjax.flax.matching.names import word_and_number

_ROLES = {
    **dict.fromkeys(("kernel", "scale", "embedding", "weight", "w", "gamma"), "weight"),
    **dict.fromkeys(("bias", "b", "beta"), "bias"),
    "negative_slope": "weight",
    "mean": "mean",
    "var": "var",
}
_KINDS: dict[Any, str] = {
    nn.Dense: "dense",
    nn.DenseGeneral: "general",
    nn.Einsum: "raw",
    nn.Conv: "conv",
    nn.ConvTranspose: "convt",
    nn.Embed: "embed",
    nn.BatchNorm: "batchnorm",
    nnx.Linear: "dense",
    nnx.LinearGeneral: "general",
    nnx.Einsum: "raw",
    nnx.Conv: "conv",
    nnx.ConvTranspose: "convt",
    nnx.Embed: "embed",
    nnx.BatchNorm: "batchnorm",
}
_CELLS = {
    frozenset(["ii", "if", "ig", "io", "hi", "hf", "hg", "ho"]): "lstm",
    frozenset(["ir", "iz", "in", "hr", "hz", "hn"]): "gru",
    frozenset(("i", "h")): "rnn",
    frozenset(("dense_i", "dense_h")): "",  # as many gates as the shape has
}


def nnx_variables(module: nnx.Module) -> dict[tuple, nnx.Variable]:
    """Returns the variables by their first path, without random counters and caches."""
    skipped = (nnx.RngState, nnx.Cache, nnx.Intermediate)
    return {
        path: node
        for path, node in nnx.iter_graph(module)
        if isinstance(node, nnx.Variable)
        and not isinstance(node, skipped)
        and hasattr(node.get_value(), "shape")
    }


def nnx_modules(module: nnx.Module) -> dict[tuple, nnx.Module]:
    """Returns all submodules by path."""
    return {p: node for p, node in nnx.iter_graph(module) if isinstance(node, nnx.Module)}


def nnx_slots(variables: Mapping[tuple, nnx.Variable]) -> list[Slot]:
    """Returns the slots of an nnx module."""
    return [
        Slot(path, x.shape, x.dtype, isinstance(v, (nnx.Param, nnx.BatchStat)), x)
        for path, v in variables.items()
        for x in [v.get_value()]
    ]


def linen_slots(variables: Mapping[str, Any]) -> list[Slot]:
    """Returns the slots of Linen's variables; their paths are without the collection."""
    slots = []
    for collection, tree in variables.items():
        if collection in ("cache", "intermediates"):
            continue
        needed = collection in ("params", "batch_stats")
        for path, leaf in traverse_util.flatten_dict(dict(tree)).items():
            x = meta.unbox(leaf)
            slots.append(Slot(path, tuple(x.shape), x.dtype, needed, x))
    return slots


def filled_linen(variables: Mapping[str, Any], values: Mapping[tuple, Any]) -> dict[str, Any]:
    """Returns the variables with these values by path; boxes with axis names are kept."""
    filled: dict[str, Any] = {}
    for collection, tree in variables.items():
        flat = traverse_util.flatten_dict(dict(tree))
        if collection not in ("cache", "intermediates"):
            for path in flat.keys() & values.keys():
                old, new = flat[path], values[path]
                boxed = isinstance(old, meta.AxisMetadata)
                flat[path] = old.replace_boxed(new) if boxed else new
        filled[collection] = traverse_util.unflatten_dict(flat)
    return filled


def layers(slots: Iterable[Slot], modules: Mapping[tuple, Any]) -> list[Flax]:
    """Groups variables into layers; ``modules`` are the flax modules by path, if known."""
    by_path = {slot.path: slot for slot in slots}
    layers = []
    for path, kind, cell in _recurrent_cells(by_path):
        layers.append(Flax(path, kind, cell))
        for slot in cell.values():
            del by_path[slot.path]
    groups: dict[tuple, dict[str, Slot]] = {}
    for path, slot in by_path.items():
        role = _ROLES.get(str(path[-1]), "")
        group = groups.setdefault(path[:-1], {})
        if role and role not in group:
            group[role] = slot
        else:
            layers.append(Flax(path, "raw", {"weight": slot}))
    for path, group in groups.items():
        if group:
            kind, facts = _kind(modules.get(path), group)
            layers.append(Flax(path, kind, group, facts))
    return layers


def _recurrent_cells(
    by_path: Mapping[tuple, Slot],
) -> Iterable[tuple[tuple, str, dict[str, Slot]]]:
    """Yields (path, kind, slots by gate and leaf) of recurrent cells."""
    parents: dict[tuple, dict[str, dict[str, Slot]]] = {}
    for path, slot in by_path.items():
        if len(path) > 1 and path[-1] in ("kernel", "bias"):
            gate = str(path[-2]).rstrip("_")
            parents.setdefault(path[:-2], {}).setdefault(gate, {})[path[-1]] = slot
    for path, gates in parents.items():
        kind = _CELLS.get(frozenset(gates))
        if kind is None:
            continue
        slots = {f"{g}/{leaf}": s for g, leaves in gates.items() for leaf, s in leaves.items()}
        if not kind:
            rows, columns = slots["dense_h/kernel"].shape
            kind = {4: "lstm", 3: "gru", 1: "rnn"}.get(columns // rows, "")
        if kind:
            yield path, kind, slots


def _kind(module: object, group: Mapping[str, Slot]) -> tuple[str, dict[str, Any]]:
    for cls, kind in _KINDS.items():
        if isinstance(module, cls):
            return kind, {"transpose_kernel": getattr(module, "transpose_kernel", None)}
    if "mean" in group:
        return "batchnorm", {}
    if "weight" not in group:
        return "norm", {}  # a norm without a scale
    leaf, dims = str(group["weight"].path[-1]), len(group["weight"].shape)
    if leaf == "kernel":  # flax's word: inputs first, outputs last
        return ("dense" if dims == 2 else ""), {}
    named = {"embedding": "embed", "scale": "norm", "negative_slope": "norm"}
    return named.get(leaf, "raw" if dims != 1 else "norm"), {}


def counting_group(layer: Flax | Torch) -> str:
    """Returns the group of layers among which numbered siblings are counted."""
    if layer.kind in ("lstm", "gru", "rnn"):
        return layer.kind
    arrays = layer.slots if isinstance(layer, Flax) else layer.tensors
    if "weight" not in arrays:
        return "norm"
    dims = len(arrays["weight"].shape)
    if dims == 1:
        return "norm"
    if layer.kind in ("conv", "convt"):
        return "conv"
    words = {"query", "key", "value", "out"}
    matrix = dims == 2 or layer.kind == "general" or word_and_number(layer.parts[-1])[0] in words
    return "matrix" if matrix else "conv"


def place_like(value: object, old: object) -> jax.Array:
    """Puts the array on the devices of the old one."""
    sharding = getattr(old, "sharding", None)
    return jax.device_put(value, sharding if isinstance(old, jax.Array) else None)
