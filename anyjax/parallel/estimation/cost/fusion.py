"""The results of a program that are written to memory, as a fusing compiler decides.

Elementwise operations are fused into their user, unless there are several. Products, collectives,
sorts and loops read and write whole arrays. A reshape is a view of the same memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anyjax.parallel.estimation.divide.nodes import Node, Program
from anyjax.parallel.estimation.divide.partition import ATTENTION, COLLECTIVES, PRODUCTS, Divided

# Views of the same memory.
VIEWS = {"reshape", "squeeze", "expand_dims", "stop_gradient", "optimization_barrier", "copy_p",
         "sharding_constraint", "bitcast_convert_type", "rounded_on_cpu", "kept_on_cpu",
         "reduce_precision"}  # fmt: skip
# Recomputed in every user.
CHEAP = {"broadcast_in_dim", "iota", "convert_element_type", "slice", "neg", "not", "abs", "sign",
         "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "select_n"}  # fmt: skip
# Operations that read and write whole arrays.
UNFUSED = {
    *COLLECTIVES, *PRODUCTS, *ATTENTION, "sort", "top_k",
    "scatter", "scatter-add", "scatter_add", "scatter_mul", "scatter_min", "scatter_max", "cumsum",
    "cumprod", "cummax", "cummin", "cumlogsumexp", "scan", "while", "cond", "random_bits",
    "rng_bit_generator", "threefry2x32", "reduce_window", "custom_call", "cholesky", "fft",
    "triangular_solve", "eigh", "svd", "lu", "qr", "dynamic_update_slice", "psum", "all_gather",
    "ppermute", "all_to_all", "reduce_scatter",
}  # fmt: skip
REDUCES = {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or",
           "argmax", "argmin", "reduce"}  # fmt: skip
IN_PLACE = {"dynamic_update_slice", "scatter", "scatter-add", "scatter_add"}


@dataclass
class Fused:
    """The memory accesses of a fused program.

    Attributes:
      roots: for each view, the value whose memory it is.
      reads: the values in memory that each writing node reads, by its number.
      written: the values in memory.
    """

    roots: dict[int, int]
    reads: dict[int, set[int]]
    written: set[int]


def fuse(divided: Divided) -> Fused:
    """Fuses a program."""
    program = divided.program
    roots: dict[int, int] = {}
    root: Callable[[Any], int] = lambda v: roots.get(v, v)
    maker: dict[int, int] = {}
    users: dict[int, list[int]] = {}
    counts = Counter(v for node in program.nodes for v in node.ins if v is not None)
    counts.update(v for v in program.outputs if v is not None)
    for i, node in enumerate(program.nodes):
        first = node.ins[0] if node.ins else None
        is_transposed_product = node.name == "transpose" and counts[first] == 1
        if node.name in VIEWS or (
            is_transposed_product and _is_product(program, maker, root(first))
        ):
            if first is None:
                continue
            roots[node.outs[0]] = root(first)
            continue
        for v in {root(v) for v in node.ins if v is not None}:
            users.setdefault(v, []).append(i)
        maker |= dict.fromkeys(node.outs, i)
    outputs = {root(v) for v in program.outputs if v is not None}
    written = {*program.inputs}
    for v, i in maker.items():
        using = [program.nodes[j] for j in users.get(v, ())]
        is_shared_scalar = (
            program.values[v].size == 1 and len(using) > 1
        )  # a scalar that many look at
        if v in outputs or is_shared_scalar or _writes(program.nodes[i], using):
            written.add(v)
    leaves_of: dict[int, frozenset[int]] = {}

    def leaves(v: int) -> frozenset[int]:
        if v in written:
            return frozenset((v,))
        if v not in leaves_of:
            ins = program.nodes[maker[v]].ins if v in maker else ()
            leaves_of[v] = frozenset().union(*(leaves(root(x)) for x in ins if x is not None))
        return leaves_of[v]

    reads = {}
    for i, node in enumerate(program.nodes):
        for v in node.outs:
            leaves(root(v))  # in order, to keep recursion shallow
        if any(v in written for v in node.outs):
            input_leaves = (leaves(root(v)) for v in node.ins if v is not None)
            reads[i] = {*frozenset().union(*input_leaves)}
    return Fused(roots, reads, written)


def _is_product(program: Program, maker: dict[int, int], v: int) -> bool:
    """Returns whether a value is a matrix product: exchanging its operands transposes it."""
    return v in maker and program.nodes[maker[v]].name == "dot_general"


def _writes(node: Node, users: list[Node]) -> bool:
    """Returns whether the results of this node are in memory."""
    if node.name in UNFUSED or node.name in REDUCES:
        return True
    if node.name == "broadcast_in_dim" or node.name == "iota":
        return False
    if any(user.name in UNFUSED for user in users):
        return True
    return len(users) > 1 and node.name not in CHEAP
