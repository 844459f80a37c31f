"""Reads and writes at places that arrays give."""

import ast

import torch
from torch import fx

from anyjax.flax.codegen.python.sizes import symbolic
from anyjax.flax.codegen.python.templates import Call, expression, rows, writes

rows(
    {
        "index_select": "jnp.take(self, index, axis=dim)",
        "take_along_dim": "jnp.take_along_axis(self, indices, axis=dim)",
        "one_hot": "nnx.one_hot(self, num_classes, dtype=jnp.int32)",
        "isin": "jnp.isin(elements, test_elements, invert=invert)",
    }
)


def subscript(base, indices) -> ast.expr:
    """Returns ``base[indices]``; None among them takes the whole dimension."""
    entries = [ast.Slice() if x is None else expression(x) for x in indices]
    return ast.Subscript(
        base, entries[0] if len(entries) == 1 else ast.Tuple(entries, ast.Load()), ast.Load()
    )


@writes("embedding")
def embedding(call: Call):
    """Writes a lookup; the padding token's row gets no gradient."""
    if call.args.get("padding_idx", -1) < 0:
        return call.write("weight[indices]")
    stopped = "jax.lax.stop_gradient(weight[indices])"
    return call.write(f"jnp.where((indices == padding_idx)[..., None], {stopped}, weight[indices])")


@writes("index")
def index(call: Call):
    return subscript(call.self, call.indices)


@writes("index_put", "index_put_", "_unsafe_index_put")
def index_put(call: Call):
    """Writes one value at all places of a mask as a choice, whose shape does not depend on
    the mask.
    """
    mask, values = call.node.args[1][0], call.fake("values")
    masked = isinstance(mask, fx.Node) and mask.meta["val"].dtype == torch.bool
    inner = call.out.ndim - mask.meta["val"].ndim if masked else 0
    if masked and values.ndim <= inner:
        if len(call.indices) > 1 or call.accumulate:
            raise NotImplementedError("a mask among other indices, or numbers added at one")
        place = f"mask[...{', None' * inner}]" if inner else "mask"
        return call.write(f"jnp.where({place}, values, self)", mask=call.indices[0])
    place = subscript(call.write("self.at"), call.indices)
    name = "add" if call.accumulate else "set"
    return call.write(f"place.{name}(values)", place=place)


REDUCED = {"sum": ("add", 0), "mean": ("add", 0), "prod": ("multiply", 1)}
REDUCED |= {"amax": ("max", -torch.inf), "amin": ("min", torch.inf)}


@writes("scatter", "scatter_")
def scatter(call: Call):
    if call.args.get("reduce"):
        raise NotImplementedError("scatter with a reduction")
    source = call.args.get("src", call.args.get("value"))
    if fewer(call):
        return scatter_fewer(call, source)
    text = "jnp.put_along_axis(self, index, source, axis=dim, inplace=False)"
    return call.write(text, source=source, dim=call.dim % call.out.ndim)


@writes("gather")
def gather(call: Call):
    if fewer(call):
        return call.write(f"self{places(call).removeprefix('at')}", **sides(call))
    return call.write("jnp.take_along_axis(self, index, axis=dim)")


def fewer(call: Call) -> bool:
    """Returns whether the index has other sizes than the array beside the indexed dimension."""
    array, index = call.fake("self"), call.fake("index")
    other_dims = [d for d in range(array.ndim) if d != call.dim % max(array.ndim, 1)]
    return any(symbolic(array.shape[d]) != symbolic(index.shape[d]) for d in other_dims)


def scatter_fewer(call: Call, source: ast.expr | float):
    """Writes ``scatter`` to fewer rows than there are."""
    shapes = [[*map(symbolic, call.fake(x).shape)] for x in ("index", "src") if x in call.args]
    if shapes[1:] not in ([], shapes[:1]):
        raise NotImplementedError("scatter of a source with more rows than the index")
    return call.write(f"self.{places(call)}.set(source)", source=source, **sides(call))


@writes("scatter_add", "scatter_add_")
def scatter_add(call: Call):
    return call.write(f"self.{places(call)}.add(src)", **sides(call))


@writes("scatter_reduce", "scatter_reduce_")
def scatter_reduce(call: Call):
    """Writes a reduction to places; numbers without contributions stay as they are."""
    name, neutral = REDUCED[call.reduce]
    place, side_values = places(call), sides(call)
    if neutral not in (0, 1) and not call.out.is_floating_point():
        raise NotImplementedError(f"scatter_reduce of whole numbers by {call.reduce}")
    if call.reduce == "prod" and call.out.is_floating_point():
        raise NotImplementedError("scatter_reduce by prod, of which JAX has no gradient")
    start = "self" if call.args.get("include_self") else f"self.{place}.set(neutral)"
    reduced = call.write(f"{start}.{place}.{name}(src)", neutral=neutral, **side_values)
    if call.reduce != "mean":
        return reduced
    counts = call.write(f"jnp.zeros(self.shape).{place}.add(1)", **side_values)
    divisor = "1 + counts" if call.include_self else "jnp.maximum(counts, 1)"
    return call.write(f"found / ({divisor})", found=reduced, counts=counts)


def places(call: Call) -> str:
    """Returns ``at[...]``: for each index its own place in the other dimensions."""
    rank, dim = call.fake("self").ndim, call.dim % max(call.fake("self").ndim, 1)
    grid = "jnp.indices(index.shape, sparse=True)"
    if rank == 1:
        return "at[index]"
    return f"at[*{grid}[:{'-1' if dim == rank - 1 else 'dim'}], index" + (
        "]" if dim == rank - 1 else f", *{grid}[after:]]"
    )


def sides(call: Call) -> dict[str, int]:
    """Returns the indexed dimension and the one after it."""
    dim = call.dim % max(call.fake("self").ndim, 1)
    return {"dim": dim, "after": dim + 1}


@writes("slice_scatter")
def slice_scatter(call: Call):
    start, end = call.start or None, call.end
    end = None if isinstance(end, int) and end >= 2**62 else end
    dim = call.dim % call.out.ndim
    full = start is None and end is None and call.step == 1
    if full:
        return call.src
    cut = ast.Slice(
        *(None if x is None else expression(x) for x in (start, end)),
        None if call.step == 1 else expression(call.step),
    )
    place = subscript(call.write("self.at"), [None] * dim + [cut])
    return call.write("place.set(src)", place=place)


@writes("select_scatter")
def select_scatter(call: Call):
    place = subscript(call.write("self.at"), [None] * (call.dim % call.out.ndim) + [call.index])
    return call.write("place.set(src)", place=place)


@writes("diagonal_scatter")
def diagonal_scatter(call: Call):
    """Writes a diagonal of the last two dimensions, in their order."""
    rank, offset = call.out.ndim, call.offset
    if [call.dim1 % rank, call.dim2 % rank] != [rank - 2, rank - 1]:
        raise NotImplementedError("a write to a diagonal of other dimensions than the last two")
    rows = call.write("jnp.arange(count)", count=call.size(call.fake("src").shape[-1]))
    row = call.write("rows - offset", rows=rows, offset=offset) if offset < 0 else rows
    column = call.write("rows + offset", rows=rows, offset=offset) if offset > 0 else rows
    text = "self.at[row, column].set(src)" if rank == 2 else "self.at[..., row, column].set(src)"
    return call.write(text, row=row, column=column)


@writes("masked_scatter")
def masked_scatter(call: Call):
    """Returns the source's elements in order, where the mask is set."""
    text = "jnp.where(mask, source.flatten()[jnp.cumsum(mask).reshape(mask.shape) - 1], self)"
    if tuple(call.fake("mask").shape) != tuple(call.out.shape):
        shape = [call.size(x) for x in call.out.shape]
        mask = call.write("jnp.broadcast_to(mask, shape)", shape=shape)
        return call.write(text, mask=mask)
    return call.write(text)


@writes("index_add")
def index_add(call: Call):
    place = subscript(call.write("self.at"), [None] * call.dim + [call.index])
    return call.write("place.add(source)", place=place)
