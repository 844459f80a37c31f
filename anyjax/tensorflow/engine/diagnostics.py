"""The place of an error: its node and the line of Python that made it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from anyjax.tensorflow.core.nodes import Node

SPECS = filter(None, map(find_spec, ("tensorflow", "keras", "tf_keras", "jax", "anyjax")))
PACKAGES = tuple(os.path.dirname(x.origin or "") + os.sep for x in SPECS)
# Nodes made in these come from a file: the stack is that of its loading.
LOADERS = ("importer.py", "function_def_to_graph.py", "function_deserialization.py")


def place(node: Node, stack: Sequence[str], library: object = None) -> str:
    """Describes a node, the functions around it, and the line of Python that made it."""
    inside = "".join(f" in {name}" for name in reversed(stack))
    line = line_of(getattr(library, "live", None), stack, node.name)
    return f"node {node.name!r} ({node.op}){inside}" + (f", {line}" if line else "")


def consumer(graph: Any, library: Any, at: int) -> str:
    """Describes the node that first uses an input of a graph."""
    name = graph.inputs[at]
    stack: list[str] = []
    while True:
        uses = ((n, e) for n in graph.nodes for e in n.inputs if e.node == name)
        node, edge = next(uses, (None, None))
        if node is None or (called := node.attr("f")) is None or called not in library:
            return place(node, stack, library) if node is not None else ""
        stack.append(called)
        graph = library[called]
        name = graph.inputs[node.inputs.index(edge)]


def line_of(live: Any, stack: Sequence[str], name: str) -> str:
    """Returns ``file:line`` of the user's Python that made a node, "" if unknown.

    ``live`` is TensorFlow's own graph, ``stack`` the functions of its library that were called.
    """
    graph = live
    for function in stack:
        functions = getattr(live, "_functions", {})
        graph = functions[function].graph if function in functions else graph
    try:
        frames = graph.get_operation_by_name(name).traceback or []
    except (AttributeError, KeyError, ValueError):
        return ""
    files = [frame[0] for frame in frames]
    if any(os.path.basename(x) in LOADERS for x in files):
        return ""
    user_frames = [f for f in frames if not f[0].startswith(PACKAGES) and _is_file(f[0])]
    return f"{user_frames[-1][0]}:{user_frames[-1][1]}" if user_frames else ""


def _is_file(name: str) -> bool:
    return not name.startswith("<") and os.path.basename(name) != "contextlib.py"
