"""Modules whose sizes follow from numbers in arrays, such as the sizes of pictures.

Such numbers are taken from the example, and so the small arrays of integers that they come from are
constants of the source: nobody can call it with others. What is left refused are sizes that follow
from activations or from tokens, as counts of what a mask selects.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from tojax.flax.codegen.graph.functionalize import packet, writes, written_by
from tojax.flax.codegen.graph.private import by_example, symbol_of
from tojax.flax.codegen.graph.views import shares
from tojax.flax.codegen.python.sizes import unknown

CHECKS = ("aten._assert_scalar", "aten.sym_constrain_range", "aten.sym_constrain_range_for_size")
MOST = 64  # numbers of an array that tells sizes
LOGGER = "torch.fx.experimental.symbolic_shapes"


class Undecided(Exception):
    """What decides cannot be a constant of the source."""


class Decisions(logging.Filter):
    """The numbers by which torch.export decided something, as it says in its log."""

    def __init__(self) -> None:
        super().__init__()
        self.symbols: set[Any] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if "propagate_real_tensors" not in str(record.msg):
            return True
        self.symbols |= unknown(record.args[0])  # type: ignore[index]
        return False


@contextlib.contextmanager
def watched() -> Iterator[Decisions]:
    """While this is open, torch.export decides by the example's numbers where it has to."""
    found, logger = Decisions(), logging.getLogger(LOGGER)
    logger.addFilter(found)
    try:
        with by_example():
            yield found
    finally:
        logger.removeFilter(found)


def tells_sizes(value: Any, others: list[Any]) -> bool:
    """Whether an input can be an array of sizes: few integers, not one for each token."""
    if not isinstance(value, torch.Tensor) or value.is_floating_point() or value.numel() > MOST:
        return False
    beside = [x for x in others if isinstance(x, torch.Tensor) and x is not value]
    return bool(beside) and not any(x.shape == value.shape for x in beside)


def sizes_from_arrays(program: Any) -> set[Any]:
    """The symbols of numbers in arrays that are sizes of what is computed."""
    found: set[Any] = set()
    for node in program.graph.nodes:
        if all(packet(user) in CHECKS for user in node.users):
            continue
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor):
                found = found.union(*map(unknown, value.shape))
    return found


def deciding(program: Any, symbols: set[Any]) -> tuple[set[str], bool]:
    """(the inputs whose numbers decide something, whether sizes of inputs do so through arrays).

    Raises:
      Undecided: something else does.
    """
    symbols = symbols | sizes_from_arrays(program)
    decisive, known = [], set()
    for node in program.graph.nodes:
        bound = set(node.meta.get("unbacked_bindings") or ())
        if packet(node) in ("aten.item", "aten._local_scalar_dense"):
            bound |= unknown(symbol_of(node.meta["val"]))
        if bound & symbols or (bound and computes(node)):
            decisive.append(node)
        known |= bound
    if symbols - known:
        raise Undecided(f"sizes {symbols - known} follow from what arrays hold")
    found = set().union(*map(ancestors, decisive))
    inputs = {node.name for node in found if node.op == "placeholder"}
    if inputs & set(program.graph_signature.inputs_to_parameters):
        raise Undecided("sizes follow from parameters")
    return inputs, any(packet(node) == "aten.sym_size" for node in found)


def computes(number: fx.Node) -> bool:
    """Whether arrays are made with a number, which checks alone do not."""
    for user in number.users:
        value = user.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)):
            if computes(user):
                return True
        elif packet(user) not in CHECKS:
            return True
    return False


def ancestors(node: fx.Node) -> set[fx.Node]:
    """Everything that a node is computed from, what is written to that included."""
    found: set[fx.Node] = set()
    left = [node]
    while left:
        one = left.pop()
        for x in (*one.all_input_nodes, *_writers(one)):
            if x not in found:
                found.add(x)
                left.append(x)
    return found


def _writers(node: fx.Node) -> list[fx.Node]:
    """What writes to a value, or to a part of it."""
    several = lambda x: isinstance(x.meta.get("val"), (list, tuple))
    parts = [x for x in node.users if shares(x, node) or several(x) or several(node)]
    direct = [x for x in node.users if written_by(x) is node]
    return direct + [y for x in parts if not writes(x) for y in _writers(x)]
