"""Labels for the dimensions of an operation's operands and results, as in an einsum.

Dimensions with the same label are divided together. A label that no result has is summed over; a
dimension without a label cannot be divided.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tojax.parallel.estimation.divide.nodes import Node, Value
from tojax.parallel.plans.same_dims import groups_of

Label = int | str | None
Dims = list[Label]


class Labels(NamedTuple):
    """The labels of each operand and each result.

    Attributes:
      ins: of operands.
      outs: of results.
      has_rule: whether there is a rule for the operation.
      shifted: a label whose elements are at other positions in the results: if it is divided,
        devices send some of them to the next.
    """

    ins: list[Dims]
    outs: list[Dims]
    has_rule: bool = True
    shifted: Label = None


Shapes = list[tuple[int, ...]]
Rule = Callable[[tuple[int, ...]], Dims]


def _spreads(x: tuple[int, ...], out: tuple[int, ...]) -> bool:
    """Returns whether an operand broadcasts to a result: its dimensions are the same or 1."""
    return not x or (len(x) == len(out) and all(n in (1, m) for n, m in zip(x, out)))


def labels_of(node: Node, values: list[Value]) -> Labels:
    """Returns the labels of a node; literals have no dimensions.

    Example:
      >>> import jax
      >>> from tojax.parallel.estimation.divide.nodes import program_of
      >>> program = program_of(jax.make_jaxpr(lambda x, w: x @ w)(*jax.numpy.ones((2, 4, 4))))
      >>> labels_of(program.nodes[0], program.values)[:2]
      ([[0, 'sum 0'], ['sum 0', 1]], [[0, 1]])
    """
    ins = [() if v is None else values[v].shape for v in node.ins]
    outs = [values[v].shape for v in node.outs]
    rule = RULES.get(node.name)
    if rule is not None:
        return rule(node.params, ins, outs)
    if outs and all(x == outs[0] for x in outs) and all(_spreads(x, outs[0]) for x in ins):
        stays: Rule = lambda x: [i if n == outs[0][i] else None for i, n in enumerate(x)]
        return Labels([stays(x) for x in ins], [[*range(len(x))] for x in outs])
    return Labels([[None] * len(x) for x in ins], [[None] * len(x) for x in outs], False)


def _unlabelled(x: tuple[int, ...]) -> Dims:
    unlabelled: Dims = [None] * len(x)
    return unlabelled


def _reduce(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    axes = params["axes"] if "axes" in params else params["dimensions"]
    kept_dims = [i for i in range(len(ins[0])) if i not in axes]
    return Labels([[*range(len(x))] for x in ins], [[*kept_dims] for _ in outs])


def _dot(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    (over_x, over_y), (batch_x, batch_y) = params["dimension_numbers"]
    x: Dims = [None] * len(ins[0])
    y: Dims = [None] * len(ins[1])
    count = 0
    for i, j in zip(batch_x, batch_y):
        x[i] = y[j] = count
        count += 1
    for n, (i, j) in enumerate(zip(over_x, over_y)):
        x[i] = y[j] = f"sum {n}"
    for dims in (x, y):
        for i, label in enumerate(dims):
            if label is None:
                dims[i] = count
                count += 1
    return Labels([x, y], [[*range(count)]])


def _ragged_dot(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """Labels a grouped product, whose rows are multiplied by the matrix of their group.

    Groups may be divided, then results are summed; rows may not.
    """
    numbers = params["ragged_dot_dimension_numbers"]
    product = _dot({"dimension_numbers": numbers.dot_dimension_numbers}, ins[:2], outs)
    (x, y), out = product.ins, product.outs[0]
    groups = numbers.rhs_group_dimensions
    for i in numbers.lhs_ragged_dimensions:  # rows of all groups stay together
        ragged, x[i] = x[i], None
        y = [None if d == ragged else d for d in y]
        out = [None if d == ragged else d for d in out]
    if not groups:  # the gradient of the matrices: the groups are the first dimension
        return Labels([x, y, [None] * len(ins[2])], [[*_numbered(x, y, outs[0])]])
    group_labels = {y[i] for i in groups}
    for n, i in enumerate(groups):
        y[i] = f"group {n}"
    return Labels(
        [x, y, [None] * len(ins[2])], [[d for d in out if d not in group_labels or d is None]]
    )


def _numbered(x: Dims, y: Dims, out: tuple[int, ...]) -> Dims:
    free: Dims = [d for d in (*x, *y) if isinstance(d, int)]
    return [*[None] * (len(out) - len(free)), *free]


def _convolution(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    numbers, is_ungrouped = params["dimension_numbers"], params["feature_group_count"] == 1
    (batch, features, *_), (out_features, in_features, *_), (rows, channels, *_) = numbers
    x: Dims = [None] * len(ins[0])
    y: Dims = [None] * len(ins[1])
    out: Dims = [None] * len(outs[0])
    x[batch] = out[rows] = 0
    y[out_features] = out[channels] = 1
    if is_ungrouped:
        x[features] = y[in_features] = "sum"
    else:
        x[features] = 1
    return Labels([x, y], [out])


def _reshape(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """Gives the slowest of several dimensions the label of the one they are reshaped to or from."""
    in_shape, out_shape = ins[0], outs[0]
    x: Dims = [None] * len(in_shape)
    out: Dims = [None] * len(out_shape)
    for n, (in_group, out_group) in enumerate(groups_of(in_shape, out_shape)):
        a = next((i for i in in_group if in_shape[i] > 1), None)
        b = next((i for i in out_group if out_shape[i] > 1), None)
        if a is not None and b is not None:
            x[a] = out[b] = n
    return Labels([x, *[_unlabelled(s) for s in ins[1:]]], [out])


def _equal_sizes(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """Labels dimensions whose length stays."""
    out = outs[0]
    same: Callable[[tuple[int, ...]], Dims] = lambda x: (
        [i if size == out[i] else None for i, size in enumerate(x)]
        if len(x) == len(out)
        else [None] * len(x)
    )
    out_dims: Dims = [i if size == ins[0][i] else None for i, size in enumerate(out)]
    return Labels([same(x) for x in ins], [[*out_dims] for _ in outs])


def _pieces(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """Labels all dimensions; along the one that is cut or joined, elements shift."""
    axis = params["dimension"] if "dimension" in params else params["axis"]
    dims: Callable[[tuple], Dims] = lambda x: [*range(len(x))]
    return Labels([dims(x) for x in ins], [dims(x) for x in outs], shifted=axis)


def _stack(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """Labels all dimensions but the new one."""
    axis = params["axis"]
    dims: Dims = [*range(len(ins[0]))]
    return Labels([[*dims] for _ in ins], [[*dims[:axis], None, *dims[axis:]]])


def _slice(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """Labels a slice along one dimension as a piece of it: it may be divided, too."""
    cut = [i for i, (a, b) in enumerate(zip(ins[0], outs[0])) if a != b]
    if len(cut) != 1 or (params["strides"] and params["strides"][cut[0]] != 1):
        return _equal_sizes(params, ins, outs)
    return _pieces({"axis": cut[0]}, ins, outs)


def _along(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    axis = params["dimension"] if "dimension" in params else params["axis"]
    dims: Callable[[tuple], Dims] = lambda x: [None if i == axis else i for i in range(len(x))]
    return Labels([dims(x) for x in ins], [dims(x) for x in outs])


def _last(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    dims: Callable[[tuple], Dims] = lambda x: [*range(len(x) - 1), None]
    return Labels([dims(x) if x else [] for x in ins], [dims(x) for x in outs])


def _cumulative(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    return _along({"axis": params["axis"] % max(len(ins[0]), 1)}, ins, outs)


def _transpose(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    return Labels([[*range(len(ins[0]))]], [[*params["permutation"]]])


def _broadcast(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    places = params["broadcast_dimensions"]
    x: Dims = [p if s == outs[0][p] else None for p, s in zip(places, ins[0])]
    return Labels([x, *([] for _ in ins[1:])], [[*range(len(outs[0]))]])


def _squeeze(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    squeezed = params["dimensions"]
    x: Dims = [None if i in squeezed else i for i in range(len(ins[0]))]
    return Labels([x], [[i for i in range(len(ins[0])) if i not in squeezed]])


def _update(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """Labels all of the array, and the dimensions that the update covers."""
    all_dims: Dims = [*range(len(outs[0]))]
    update_dims: Dims = [i if a == b else None for i, (a, b) in enumerate(zip(ins[1], outs[0]))]
    return Labels([all_dims, update_dims, *[_unlabelled(x) for x in ins[2:]]], [all_dims])


def _gather(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """Labels rows and a table: rows of a divided table are summed over its shards."""
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    x: Dims = [None] * len(ins[0])
    out: Dims = [None] * len(outs[0])
    index: Dims = [None] * len(ins[1])
    batch = [i for i in range(len(out)) if i not in numbers.offset_dims]
    for n, i in enumerate(batch):
        index[n] = out[i] = f"row {n}"
    for i, j in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims):
        x[i] = index[j]
    for i in numbers.collapsed_slice_dims:
        x[i] = f"table {i}"
    collapsed = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    window = [i for i in range(len(x)) if i not in collapsed]
    for i, place in zip(window, numbers.offset_dims):
        if sizes[i] == ins[0][i]:
            x[i] = out[place] = i
    return Labels([x, index], [out])


def _scatter(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """Labels rows that are added to an array: divided rows are summed over devices."""
    numbers = params["dimension_numbers"]
    x: Dims = [*range(len(ins[0]))]
    update: Dims = [None] * len(ins[2])
    index: Dims = [None] * len(ins[1])
    inserted = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    window = [i for i in range(len(x)) if i not in inserted]
    for i, place in zip(window, numbers.update_window_dims):
        if ins[2][place] == ins[0][i]:
            update[place] = i
    rows = [i for i in range(len(update)) if i not in numbers.update_window_dims]
    batching = zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims)
    batch = {j: i for i, j in batching}
    for n, i in enumerate(rows):
        update[i] = index[n] = batch.get(n, f"row {n}")
    return Labels([x, index, update], [[*x]])


def _scatter_set(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """Labels a scatter in which the last write wins: every device needs all rows."""
    x, index, update = _scatter(params, ins, outs).ins
    without_rows: Callable[[Dims], Dims] = lambda d: [None if isinstance(i, str) else i for i in d]
    return Labels([x, without_rows(index), without_rows(update)], [[*x]])


def _sort(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    return _along({"axis": params["dimension"]}, ins, outs)


def _new(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """Labels new values: each device makes its own shard."""
    return Labels([[None] * len(x) for x in ins], [[*range(len(x))] for x in outs])


RULES: dict[str, Callable[[Any, Shapes, Shapes], Labels]] = {
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and",
                     "reduce_or", "reduce_xor", "argmax", "argmin", "reduce"), _reduce),
    **dict.fromkeys(("dynamic_slice", "pad", "rev"), _equal_sizes),
    **dict.fromkeys(("concatenate", "split"), _pieces),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _cumulative),
    **dict.fromkeys(("scatter-add", "scatter_add", "scatter_mul", "scatter-mul"), _scatter),
    **dict.fromkeys(("scatter", "scatter_min", "scatter_max", "scatter-min", "scatter-max"),
                    _scatter_set),
    **dict.fromkeys(("iota", "random_bits", "rng_bit_generator", "threefry2x32", "empty"), _new),
    "dot_general": _dot, "ragged_dot_general": _ragged_dot, "conv_general_dilated": _convolution,
    "reshape": _reshape, "transpose": _transpose, "broadcast_in_dim": _broadcast,
    "squeeze": _squeeze, "dynamic_update_slice": _update, "gather": _gather, "top_k": _last,
    "sort": _sort, "slice": _slice, "stack": _stack,
}  # fmt: skip
