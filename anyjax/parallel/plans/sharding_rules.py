"""How an operation's dimensions can be sharded, in Shardy's words.

A sharding rule gives each dimension of the operands and results a factor, like the letters of an
einsum. Dimensions of the same factor are sharded together. A factor that no result has is reduced;
a dimension without a factor needs to be replicated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Params = Mapping[str, Any]  # of an equation
Shape = tuple[int, ...]
Shapes = Sequence[Shape]
Factor = int | str | None
Factors = list[Factor]


class ShardingRule(NamedTuple):
    """The factors of an operation.

    Attributes:
      operands: of each operand's dimensions.
      results: of each result's dimensions.
      is_known: False if the operation is not in ``RULES``.
      permuted: a factor whose elements are at other positions in the results: if it is sharded,
        devices send some of them to the next.
    """

    operands: list[Factors]
    results: list[Factors]
    is_known: bool = True
    permuted: Factor = None


def sharding_rule(name: str, params: Params, operands: Shapes, results: Shapes) -> ShardingRule:
    """Returns the rule of an operation on arrays of these shapes; literals have the shape ().

    Example:
      >>> numbers = {"dimension_numbers": (((1,), (0,)), ((), ()))}
      >>> sharding_rule("dot_general", numbers, [(2, 4), (4, 8)], [(2, 8)])[:2]
      ([[0, 'sum 0'], ['sum 0', 1]], [[0, 1]])
    """
    if name in RULES:
        return RULES[name](params, operands, results)
    is_elementwise = bool(results) and all(x == results[0] for x in results)
    if is_elementwise and all(_broadcasts(x, results[0]) for x in operands):
        factors = equal_sizes(params, operands, results).operands
        return ShardingRule(factors, [*map(_numbered, results)])
    return ShardingRule([*map(_replicated, operands)], [*map(_replicated, results)], False)


def _broadcasts(x: Shape, out: Shape) -> bool:
    """Returns whether an operand broadcasts to a result: its dimensions are the same or 1."""
    return not x or (len(x) == len(out) and all(n in (1, m) for n, m in zip(x, out)))


def _replicated(x: Shape) -> Factors:
    return [None for _ in x]


def _numbered(x: Shape, replicated: int | None = None) -> Factors:
    return [None if i == replicated else i for i in range(len(x))]


def _reduce(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    axes = params["axes"] if "axes" in params else params["dimensions"]
    remaining: Factors = [i for i in range(len(ins[0])) if i not in axes]
    return ShardingRule([*map(_numbered, ins)], [[*remaining] for _ in outs])


def _dot(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    (over_x, over_y), (batch_x, batch_y) = params["dimension_numbers"]
    x, y = map(_replicated, ins)
    count = 0
    for i, j in zip(batch_x, batch_y):
        x[i] = y[j] = count
        count += 1
    for n, (i, j) in enumerate(zip(over_x, over_y)):
        x[i] = y[j] = f"sum {n}"
    for factors in (x, y):
        for i, factor in enumerate(factors):
            if factor is None:
                factors[i] = count
                count += 1
    return ShardingRule([x, y], [[*range(count)]])


def _attention(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    """Returns the rule of an attention: kernels have whole rows of some of the heads."""

    def factors(x: Shape) -> Factors:
        return [i if i < 2 and n > 1 else None for i, n in enumerate(x)]

    return ShardingRule([*map(factors, ins)], [*map(factors, outs)])


def _ragged_dot(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    """Returns the rule of a grouped product, whose rows meet the matrix of their group.

    Groups may be sharded, then results are reduced; rows may not.
    """
    numbers = params["ragged_dot_dimension_numbers"]
    product = _dot({"dimension_numbers": numbers.dot_dimension_numbers}, ins[:2], outs)
    (x, y), out = product.operands, product.results[0]
    groups = numbers.rhs_group_dimensions
    for i in numbers.lhs_ragged_dimensions:  # rows of all groups stay together
        ragged, x[i] = x[i], None
        y = [None if d == ragged else d for d in y]
        out = [None if d == ragged else d for d in out]
    if not groups:  # the gradient of the matrices: the groups are the first dimension
        free: Factors = [d for d in (*x, *y) if isinstance(d, int)]
        out = [*[None] * (len(outs[0]) - len(free)), *free]
        return ShardingRule([x, y, _replicated(ins[2])], [out])
    group_factors = {y[i] for i in groups}
    for n, i in enumerate(groups):
        y[i] = f"group {n}"
    out = [d for d in out if d not in group_factors or d is None]
    return ShardingRule([x, y, _replicated(ins[2])], [out])


def _convolution(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    numbers, is_ungrouped = params["dimension_numbers"], params["feature_group_count"] == 1
    (batch, features, *_), (out_features, in_features, *_), (rows, channels, *_) = numbers
    (x, y), out = map(_replicated, ins), _replicated(outs[0])
    x[batch] = out[rows] = 0
    depthwise = ins[1][in_features] == 1 and ins[1][out_features] == ins[0][features]
    if is_ungrouped:
        x[features] = y[in_features] = "sum"
    if is_ungrouped or depthwise:  # the features of groups of several are gathered
        y[out_features] = out[channels] = 1
    if depthwise and not is_ungrouped:
        x[features] = 1
    return ShardingRule([x, y], [out])


def _reshape(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    """Gives the slowest of several dimensions the factor of the one they are split from."""
    in_shape, out_shape = ins[0], outs[0]
    x, out = _replicated(in_shape), _replicated(out_shape)
    for n, (in_group, out_group) in enumerate(groups_of(in_shape, out_shape)):
        a = next((i for i in in_group if in_shape[i] > 1), None)
        b = next((i for i in out_group if out_shape[i] > 1), None)
        if a is not None and b is not None:
            x[a] = out[b] = n
    return ShardingRule([x, *map(_replicated, ins[1:])], [out])


def groups_of(in_shape: Shape, out_shape: Shape) -> list[tuple[list[int], list[int]]]:
    """Returns groups of dimensions (before, after) with the same elements; none for empty arrays.

    Example:
      >>> groups_of((2, 3, 8), (6, 4, 2))
      [([0, 1], [0]), ([2], [1, 2])]
    """
    groups, i, j = [], 0, 0
    while i < len(in_shape) and j < len(out_shape) and 0 not in in_shape:
        in_group, out_group = [i], [j]
        x, y = in_shape[i], out_shape[j]
        while x != y:
            if x < y:
                i += 1
                x *= in_shape[i]
                in_group.append(i)
            else:
                j += 1
                y *= out_shape[j]
                out_group.append(j)
        groups.append((in_group, out_group))
        i, j = i + 1, j + 1
    return groups


def equal_sizes(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    """Returns the rule of dimensions whose size stays."""
    same: Callable[[Shape, Shape], Factors] = lambda x, y: (
        [i if n == m else None for i, (n, m) in enumerate(zip(x, y))]
        if len(x) == len(y)
        else _replicated(x)
    )
    first = next(iter(ins), outs[0])
    return ShardingRule([same(x, outs[0]) for x in ins], [same(x, first) for x in outs])


def _pieces(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    """Returns the rule of arrays that are cut or joined: along that axis, elements are permuted."""
    axis = params["dimension"] if "dimension" in params else params["axis"]
    return ShardingRule([*map(_numbered, ins)], [*map(_numbered, outs)], permuted=axis)


def _stack(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    factors, axis = _numbered(ins[0]), params["axis"]
    return ShardingRule([factors] * len(ins), [[*factors[:axis], None, *factors[axis:]]])


def _slice(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    """Returns the rule of a piece along one dimension, which may be sharded, too."""
    cut = [i for i, (a, b) in enumerate(zip(ins[0], outs[0])) if a != b]
    if len(cut) != 1 or (params["strides"] and params["strides"][cut[0]] != 1):
        return equal_sizes(params, ins, outs)
    return _pieces({"axis": cut[0]}, ins, outs)


def _along(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    """Returns the rule of an operation that reads all along one axis, the last by default."""
    axis = params.get("axis", params.get("dimension", -1)) % max(len(outs[0]), 1)
    factors = lambda shapes: [_numbered(x, axis) for x in shapes]
    return ShardingRule(factors(ins), factors(outs))


def _transpose(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    return ShardingRule([_numbered(ins[0])], [[*params["permutation"]]])


def _broadcast(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    places = params["broadcast_dimensions"]
    x: Factors = [p if s == outs[0][p] else None for p, s in zip(places, ins[0])]
    return ShardingRule([x, *([] for _ in ins[1:])], [_numbered(outs[0])])


def _squeeze(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    x: Factors = [None if i in params["dimensions"] else i for i in range(len(ins[0]))]
    return ShardingRule([x], [[i for i in x if i is not None]])


def _update(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    """Returns the rule of an array and of the dimensions that an update covers."""
    update: Factors = [i if a == b else None for i, (a, b) in enumerate(zip(ins[1], outs[0]))]
    factors = _numbered(outs[0])
    return ShardingRule([factors, update, *map(_replicated, ins[2:])], [factors])


def _gather(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    """Returns the rule of a table and its rows: those of a sharded table are reduced."""
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    (x, index), out = map(_replicated, ins), _replicated(outs[0])
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
    return ShardingRule([x, index], [out])


def _scatter(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    """Returns the rule of rows that are added to an array: sharded rows are reduced."""
    numbers = params["dimension_numbers"]
    x, index, update = _numbered(ins[0]), _replicated(ins[1]), _replicated(ins[2])
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
    return ShardingRule([x, index, update], [[*x]])


def _scatter_set(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    """Returns the rule of a scatter whose last write wins: every device needs all rows."""
    x, index, update = _scatter(params, ins, outs).operands
    without_rows: Callable[[Factors], Factors] = lambda factors: [
        None if isinstance(d, str) else d for d in factors
    ]
    return ShardingRule([x, without_rows(index), without_rows(update)], [[*x]])


def _new(params: Params, ins: Shapes, outs: Shapes) -> ShardingRule:
    """Returns the rule of new values: each device makes its own shard."""
    return ShardingRule([*map(_replicated, ins)], [*map(_numbered, outs)])


RULES: dict[str, Callable[[Params, Shapes, Shapes], ShardingRule]] = {
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and",
                     "reduce_or", "reduce_xor", "argmax", "argmin", "reduce"), _reduce),
    **dict.fromkeys(("dynamic_slice", "pad", "rev"), equal_sizes),
    **dict.fromkeys(("concatenate", "split"), _pieces),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "sort", "top_k"),
                    _along),
    **dict.fromkeys(("scatter-add", "scatter_add", "scatter_mul", "scatter-mul"), _scatter),
    **dict.fromkeys(("scatter", "scatter_min", "scatter_max", "scatter-min", "scatter-max"),
                    _scatter_set),
    **dict.fromkeys(("iota", "random_bits", "rng_bit_generator", "threefry2x32", "empty"), _new),
    "dot_general": _dot, "ragged_dot_general": _ragged_dot, "conv_general_dilated": _convolution,
    "reshape": _reshape, "transpose": _transpose, "broadcast_in_dim": _broadcast,
    "squeeze": _squeeze, "dynamic_update_slice": _update, "gather": _gather, "slice": _slice,
    "stack": _stack, "attention": _attention, "attention_tangent": _attention,
    "attention_gradient": _attention,
}  # fmt: skip
