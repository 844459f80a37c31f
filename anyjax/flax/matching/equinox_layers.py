"""The variables of an Equinox module as layers."""

from __future__ import annotations

from collections.abc import Mapping

import equinox as eqx

from anyjax.flax.matching import flax_layers
from anyjax.flax.matching.layer import Flax, Slot

_KINDS = {
    eqx.nn.Linear: "dense",
    eqx.nn.Conv: "conv",
    eqx.nn.ConvTranspose: "convt",
    eqx.nn.Embedding: "embed",
    eqx.nn.BatchNorm: "batchnorm",
    eqx.nn.LSTMCell: "lstm",
    eqx.nn.GRUCell: "gru",
}


def layers(slots: list[Slot], modules: Mapping[tuple, eqx.Module]) -> list[Flax]:
    """Groups variables into layers by the modules that hold them."""
    kinds = {
        path: (kind, getattr(module, "groups", 1))
        for path, module in modules.items()
        for cls, kind in _KINDS.items()
        if isinstance(module, cls)
    }
    cells = {path: kind for path, (kind, _) in kinds.items() if kind in ("lstm", "gru")}
    groups: dict[tuple, dict[str, Slot]] = {path: {} for path in cells}
    loose = []
    for slot in slots:
        if slot.path[:-1] in cells:
            groups[slot.path[:-1]][slot.path[-1]] = slot
        else:
            loose.append(slot)
    layers = [Flax(path, cells[path], group) for path, group in groups.items()]
    for layer in flax_layers.layers(loose, {}):
        kind, count = kinds.get(layer.path, (layer.kind, 1))
        facts = {"torch_order": True, "groups": count} if layer.path in kinds else {}
        layers.append(Flax(layer.path, kind, layer.slots, facts))
    return layers
