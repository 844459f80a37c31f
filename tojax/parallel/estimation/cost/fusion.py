"""Which results of a program are ever written to memory, as a compiler that fuses decides.

Elementwise operations run inside of what uses them, unless several do; products, collectives, sorts
and loops read and write whole arrays. A reshape is the same memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tojax.parallel.estimation.divide.nodes import Node, Program
from tojax.parallel.estimation.divide.partition import COLLECTIVES, Divided

# The same memory, looked at in another way.
VIEWS = {"reshape", "squeeze", "expand_dims", "stop_gradient", "optimization_barrier", "copy_p",
         "sharding_constraint", "bitcast_convert_type", "rounded_on_cpu", "kept_on_cpu",
         "reduce_precision"}  # fmt: skip
# Made again wherever it is used.
CHEAP = {"broadcast_in_dim", "iota", "convert_element_type", "slice", "neg", "not", "abs", "sign",
         "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "select_n"}  # fmt: skip
# What reads and writes whole arrays.
WHOLES = {
    *COLLECTIVES, "dot_general", "ragged_dot_general", "conv_general_dilated", "sort", "top_k",
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
    """What is written, and what each node that writes reads.

    Attributes:
      roots: the value whose memory a value is, through views.
      reads: for each node that writes, by its number, the values in memory that it reads.
      written: values that are in memory.
    """

    roots: dict[int, int]
    reads: dict[int, set[int]]
    written: set[int]


def fused(part: Divided) -> Fused:
    """Decides it for a program."""
    program = part.program
    roots: dict[int, int] = {}
    root: Callable[[Any], int] = lambda v: roots.get(v, v)
    maker: dict[int, int] = {}
    users: dict[int, list[int]] = {}
    counts = Counter(v for node in program.nodes for v in node.ins if v is not None)
    counts.update(v for v in program.outputs if v is not None)
    for i, node in enumerate(program.nodes):
        first = node.ins[0] if node.ins else None
        turned = node.name == "transpose" and counts[first] == 1
        if node.name in VIEWS or (turned and _product(program, maker, root(first))):
            if first is None:
                continue
            roots[node.outs[0]] = root(first)
            continue
        for v in {root(v) for v in node.ins if v is not None}:
            users.setdefault(v, []).append(i)
        maker |= dict.fromkeys(node.outs, i)
    wanted = {root(v) for v in program.outputs if v is not None}
    written = {*program.inputs}
    for v, i in maker.items():
        using = [program.nodes[j] for j in users.get(v, ())]
        shared = program.values[v].size == 1 and len(using) > 1  # a scalar that many look at
        if v in wanted or shared or _writes(program.nodes[i], using):
            written.add(v)
    seen: dict[int, frozenset[int]] = {}

    def leaves(v: int) -> frozenset[int]:
        if v in written:
            return frozenset((v,))
        if v not in seen:
            ins = program.nodes[maker[v]].ins if v in maker else ()
            seen[v] = frozenset().union(*(leaves(root(x)) for x in ins if x is not None))
        return seen[v]

    reads = {}
    for i, node in enumerate(program.nodes):
        for v in node.outs:
            leaves(root(v))  # in order, so that nothing is deep
        if any(v in written for v in node.outs):
            given = (leaves(root(v)) for v in node.ins if v is not None)
            reads[i] = {*frozenset().union(*given)}
    return Fused(roots, reads, written)


def _product(program: Program, maker: dict[int, int], v: int) -> bool:
    """Whether a value is a matrix product: one with its operands exchanged is the transpose."""
    return v in maker and program.nodes[maker[v]].name == "dot_general"


def _writes(node: Node, users: list[Node]) -> bool:
    """Whether a result of this node is in memory."""
    if node.name in WHOLES or node.name in REDUCES:
        return True
    if node.name == "broadcast_in_dim" or node.name == "iota":
        return False
    if any(user.name in WHOLES for user in users):
        return True
    return len(users) > 1 and node.name not in CHEAP
