"""Modules whose sizes depend on numbers in arrays, such as the sizes of pictures.

Such numbers are taken from the example, and the small arrays of integers that they come from become
constants of the source: it cannot be called with others. Still refused: sizes that depend on
activations or tokens, such as how many places a mask selects.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from anyjax.flax.codegen.graph.functionalize import packet, reached, writes, written_by
from anyjax.flax.codegen.graph.private import by_example, symbol_of
from anyjax.flax.codegen.graph.views import shares
from anyjax.flax.codegen.python.sizes import unknown

CHECKS = ("aten._assert_scalar", "aten.sym_constrain_range", "aten.sym_constrain_range_for_size")
MAX_ELEMENTS = 64  # numbers of an array that tells sizes
LOGGER = "torch.fx.experimental.symbolic_shapes"


class DataDependentSizes(Exception):
    """Raised where sizes depend on data that cannot be a constant of the source."""


class Decisions(logging.Filter):
    """Collects the symbols by which torch.export decided something, as it says in its log."""

    def __init__(self) -> None:
        super().__init__()
        self.symbols: set[Any] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if "propagate_real_tensors" not in str(record.msg):
            return True
        self.symbols |= unknown(record.args[0])  # type: ignore[index]
        return False


@contextlib.contextmanager
def recorded_decisions() -> Iterator[Decisions]:
    """Lets torch.export decide by the example's numbers, and records where it does."""
    decisions, logger = Decisions(), logging.getLogger(LOGGER)
    logger.addFilter(decisions)
    try:
        with by_example():
            yield decisions
    finally:
        logger.removeFilter(decisions)


def may_hold_sizes(value: object, leaves: list[object]) -> bool:
    """Returns whether an input may be an array of sizes: a few integers, not one for each token."""
    if not isinstance(value, torch.Tensor) or value.is_floating_point():
        return False
    tensors = [x for x in leaves if isinstance(x, torch.Tensor) and x is not value]
    is_small = value.numel() <= MAX_ELEMENTS
    return is_small and bool(tensors) and not any(x.shape == value.shape for x in tensors)


def sizes_from_arrays(program: ExportedProgram) -> set[Any]:
    """Returns the symbols of numbers in arrays that become sizes of arrays."""
    symbols: set[Any] = set()
    for node in program.graph.nodes:
        if all(packet(user) in CHECKS for user in node.users):
            continue
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor):
                symbols = symbols.union(*map(unknown, value.shape))
    return symbols


def deciding_inputs(program: ExportedProgram, symbols: set[Any]) -> tuple[set[str], bool]:
    """Returns the inputs whose numbers decide something, and whether sizes of inputs reach these.

    Raises:
      DataDependentSizes: numbers in other arrays decide.
    """
    symbols = symbols | sizes_from_arrays(program)
    decisive, bound_symbols = [], set()
    for node in program.graph.nodes:
        node_symbols = set(node.meta.get("unbacked_bindings") or ())
        if packet(node) in ("aten.item", "aten._local_scalar_dense"):
            node_symbols |= unknown(symbol_of(node.meta["val"]))
        if node_symbols & symbols or (node_symbols and reaches_arrays(node)):
            decisive.append(node)
        bound_symbols |= node_symbols
    if symbols - bound_symbols:
        raise DataDependentSizes(f"sizes {symbols - bound_symbols} follow from what arrays hold")
    upstream = set().union(*map(ancestors, decisive))
    inputs = {node.name for node in upstream if node.op == "placeholder"}
    if inputs & set(program.graph_signature.inputs_to_parameters):
        raise DataDependentSizes("sizes follow from parameters")
    return inputs, any(packet(node) == "aten.sym_size" for node in upstream)


def reaches_arrays(number: fx.Node) -> bool:
    """Returns whether arrays are made with a number; checks of the number do not count."""
    for user in number.users:
        value = user.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)):
            if reaches_arrays(user):
                return True
        elif packet(user) not in CHECKS:
            return True
    return False


def ancestors(node: fx.Node) -> set[fx.Node]:
    """Returns the nodes that a node is computed from, those that write to it included."""
    return reached(node, lambda x: (*x.all_input_nodes, *_writers(x)))


def _writers(node: fx.Node) -> list[fx.Node]:
    """Returns the nodes that write to a value, or to a view of it."""
    several = lambda x: isinstance(x.meta.get("val"), (list, tuple))
    views = [x for x in node.users if shares(x, node) or several(x) or several(node)]
    direct = [x for x in node.users if written_by(x) is node]
    return direct + [y for x in views if not writes(x) for y in _writers(x)]
