"""Which dimensions of an operation's operands and results go together, as in an einsum.

A label stands for one dimension of the computation. What has the same label is divided together; a
label that no result has is summed over; a dimension without one has to be whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tojax.parallel.estimation.divide.nodes import Node, Value
from tojax.parallel.plans.same_dims import groups_of

Label = int | str | None
Dims = list[Label]


class Labels(NamedTuple):
    """Labels of each operand and each result.

    ``known`` says that there is a rule, ``shifted`` is a label whose parts are at other places in
    the results: where it is divided, devices send some of theirs to the next.
    """

    ins: list[Dims]
    outs: list[Dims]
    known: bool = True
    shifted: Label = None


Shapes = list[tuple[int, ...]]
Rule = Callable[[tuple[int, ...]], Dims]


def _spreads(x: tuple[int, ...], out: tuple[int, ...]) -> bool:
    """Whether an operand goes elementwise into a result: its dimensions are the same or 1."""
    return not x or (len(x) == len(out) and all(n in (1, m) for n, m in zip(x, out)))


def labels_of(node: Node, values: list[Value]) -> Labels:
    """The labels of a node; literals have no dimensions.

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


def _whole(x: tuple[int, ...]) -> Dims:
    found: Dims = [None] * len(x)
    return found


def _reduce(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    axes = params["axes"] if "axes" in params else params["dimensions"]
    left = [i for i in range(len(ins[0])) if i not in axes]
    return Labels([[*range(len(x))] for x in ins], [[*left] for _ in outs])


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
    """Rows in groups beside a matrix for each: groups may be divided, then results are summed; the
    rows themselves may not.
    """
    numbers = params["ragged_dot_dimension_numbers"]
    found = _dot({"dimension_numbers": numbers.dot_dimension_numbers}, ins[:2], outs)
    (x, y), out = found.ins, found.outs[0]
    groups = numbers.rhs_group_dimensions
    for i in numbers.lhs_ragged_dimensions:  # rows of all groups stay together
        ragged, x[i] = x[i], None
        y = [None if d == ragged else d for d in y]
        out = [None if d == ragged else d for d in out]
    if not groups:  # the gradient of the matrices: the groups are the first dimension
        return Labels([x, y, [None] * len(ins[2])], [[*_numbered(x, y, outs[0])]])
    gone = {y[i] for i in groups}
    for n, i in enumerate(groups):
        y[i] = f"group {n}"
    return Labels([x, y, [None] * len(ins[2])], [[d for d in out if d not in gone or d is None]])


def _numbered(x: Dims, y: Dims, out: tuple[int, ...]) -> Dims:
    free: Dims = [d for d in (*x, *y) if isinstance(d, int)]
    return [*[None] * (len(out) - len(free)), *free]


def _convolution(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    numbers, plain = params["dimension_numbers"], params["feature_group_count"] == 1
    (batch, features, *_), (made, taken, *_), (rows, channels, *_) = numbers
    x: Dims = [None] * len(ins[0])
    y: Dims = [None] * len(ins[1])
    out: Dims = [None] * len(outs[0])
    x[batch] = out[rows] = 0
    y[made] = out[channels] = 1
    if plain:
        x[features] = y[taken] = "sum"
    else:
        x[features] = 1
    return Labels([x, y], [out])


def _reshape(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """Of dimensions that are merged or split the slowest is divided with the whole."""
    before, after = ins[0], outs[0]
    x: Dims = [None] * len(before)
    out: Dims = [None] * len(after)
    for n, (some, others) in enumerate(groups_of(before, after)):
        a = next((i for i in some if before[i] > 1), None)
        b = next((i for i in others if after[i] > 1), None)
        if a is not None and b is not None:
            x[a] = out[b] = n
    return Labels([x, *[_whole(s) for s in ins[1:]]], [out])


def _kept(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """Dimensions whose length stays."""
    out = outs[0]
    same: Callable[[tuple[int, ...]], Dims] = lambda x: (
        [i if size == out[i] else None for i, size in enumerate(x)]
        if len(x) == len(out)
        else [None] * len(x)
    )
    made: Dims = [i if size == ins[0][i] else None for i, size in enumerate(out)]
    return Labels([same(x) for x in ins], [[*made] for _ in outs])


def _pieces(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """Along the dimension that is cut or joined parts move."""
    axis = params["dimension"] if "dimension" in params else params["axis"]
    dims: Callable[[tuple], Dims] = lambda x: [*range(len(x))]
    return Labels([dims(x) for x in ins], [dims(x) for x in outs], shifted=axis)


def _stack(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """The new dimension is whole."""
    axis = params["axis"]
    dims: Dims = [*range(len(ins[0]))]
    return Labels([[*dims] for _ in ins], [[*dims[:axis], None, *dims[axis:]]])


def _slice(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """A half of a divided dimension is divided, too."""
    cut = [i for i, (a, b) in enumerate(zip(ins[0], outs[0])) if a != b]
    if len(cut) != 1 or (params["strides"] and params["strides"][cut[0]] != 1):
        return _kept(params, ins, outs)
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
    gone = params["dimensions"]
    x: Dims = [None if i in gone else i for i in range(len(ins[0]))]
    return Labels([x], [[i for i in range(len(ins[0])) if i not in gone]])


def _update(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """A part is written: what is divided and not written as a whole stays divided."""
    whole: Dims = [*range(len(outs[0]))]
    part: Dims = [i if a == b else None for i, (a, b) in enumerate(zip(ins[1], outs[0]))]
    return Labels([whole, part, *[_whole(x) for x in ins[2:]]], [whole])


def _gather(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """Rows of a divided table are a sum over its parts."""
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
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    left = [i for i in range(len(x)) if i not in gone]
    for i, place in zip(left, numbers.offset_dims):
        if sizes[i] == ins[0][i]:
            x[i] = out[place] = i
    return Labels([x, index], [out])


def _scatter(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """Rows that are added somewhere are summed over the devices that have some of them."""
    numbers = params["dimension_numbers"]
    x: Dims = [*range(len(ins[0]))]
    update: Dims = [None] * len(ins[2])
    index: Dims = [None] * len(ins[1])
    gone = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    left = [i for i in range(len(x)) if i not in gone]
    for i, place in zip(left, numbers.update_window_dims):
        if ins[2][place] == ins[0][i]:
            update[place] = i
    rows = [i for i in range(len(update)) if i not in numbers.update_window_dims]
    batching = zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims)
    batch = {j: i for i, j in batching}
    for n, i in enumerate(rows):
        update[i] = index[n] = batch.get(n, f"row {n}")
    return Labels([x, index, update], [[*x]])


def _scatter_set(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """The last one that writes wins, so that all rows have to be there."""
    x, index, update = _scatter(params, ins, outs).ins
    whole: Callable[[Dims], Dims] = lambda d: [None if isinstance(i, str) else i for i in d]
    return Labels([x, whole(index), whole(update)], [[*x]])


def _sort(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    return _along({"axis": params["dimension"]}, ins, outs)


def _made(params: Any, ins: Shapes, outs: Shapes) -> Labels:
    """Made of nothing: each device makes its part."""
    return Labels([[None] * len(x) for x in ins], [[*range(len(x))] for x in outs])


RULES: dict[str, Callable[[Any, Shapes, Shapes], Labels]] = {
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and",
                     "reduce_or", "reduce_xor", "argmax", "argmin", "reduce"), _reduce),
    **dict.fromkeys(("dynamic_slice", "pad", "rev"), _kept),
    **dict.fromkeys(("concatenate", "split"), _pieces),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _cumulative),
    **dict.fromkeys(("scatter-add", "scatter_add", "scatter_mul", "scatter-mul"), _scatter),
    **dict.fromkeys(("scatter", "scatter_min", "scatter_max", "scatter-min", "scatter-max"),
                    _scatter_set),
    **dict.fromkeys(("iota", "random_bits", "rng_bit_generator", "threefry2x32", "empty"), _made),
    "dot_general": _dot, "ragged_dot_general": _ragged_dot, "conv_general_dilated": _convolution,
    "reshape": _reshape, "transpose": _transpose, "broadcast_in_dim": _broadcast,
    "squeeze": _squeeze, "dynamic_update_slice": _update, "gather": _gather, "top_k": _last,
    "sort": _sort, "slice": _slice, "stack": _stack,
}  # fmt: skip
