"""Grouped-query attention: torch repeats keys and values for each head, JAX's attention does
not.
"""

from __future__ import annotations

from torch import fx

from anyjax.flax.codegen.graph.functionalize import packet

REPEATING = {f"aten.{x}" for x in ("reshape", "view", "expand", "unsqueeze", "slice", "clone")}


def without_repeated_heads(nodes: list[fx.Node]) -> list[fx.Node]:
    """Lets attention read keys and values before they are repeated; returns the nodes still
    used.
    """
    for node in nodes:
        if packet(node) == "aten.scaled_dot_product_attention":
            query, key, value, *options = node.args
            once = [unrepeated(x) for x in (key, value)]
            if all(once) and query.meta["val"].ndim == 4:
                node.args = (query, *once, *options)
    used: list[fx.Node] = []
    for node in reversed(nodes):
        if node.users:
            used.append(node)
        else:
            node.graph.erase_node(node)
    return used[::-1]


def unrepeated(node: fx.Node) -> fx.Node | None:
    """Returns ``x`` of ``x[:, :, None].expand(...).reshape(...)``, None for other nodes."""
    steps = []
    while packet(node) in REPEATING:
        steps.append(packet(node).removeprefix("aten."))
        if steps[-1] == "unsqueeze" and node.args[1] == 2:
            reshaped, *inside = [x for x in steps if x not in ("slice", "clone")]
            repeats = reshaped in ("reshape", "view") and inside == ["expand", "unsqueeze"]
            return node.args[0] if repeats and node.args[0].meta["val"].ndim == 4 else None
        node = node.args[0]
    return None
