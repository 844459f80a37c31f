"""The same numbers in another shape."""

import ast

import torch

from anyjax.flax.codegen.python.indexing import indexed
from anyjax.flax.codegen.python.templates import Call, expression, rows, writes

rows(
    {
        "view": "self.reshape(*size)",
        "reshape": "self.reshape(*shape)",
        "_unsafe_view": "self.reshape(*size)",
        "ravel": "self.reshape(-1)",
        "t": "self.T",
        "numpy_T": "self.T",
        "mT": "self.mT",
        "view_as": "self.reshape(other.shape)",
        "reshape_as": "self.reshape(other.shape)",
        "expand_as": "jnp.broadcast_to(self, other.shape)",
        "flip": "jnp.flip(self, dims)",
        "movedim": "jnp.moveaxis(self, source, destination)",
        "moveaxis": "jnp.moveaxis(self, source, destination)",
        "tril": "jnp.tril(self, diagonal)",
        "triu": "jnp.triu(self, diagonal)",
        "roll": "jnp.roll(self, shifts, dims)",
        "repeat": "jnp.tile(self, repeats)",
        "tile": "jnp.tile(self, dims)",
        "meshgrid": "jnp.meshgrid(*tensors, indexing=indexing)",
        "diagonal": "jnp.diagonal(self, offset, dim1, dim2)",
        "broadcast_to": "jnp.broadcast_to(self, size)",
        "broadcast_tensors": "jnp.broadcast_arrays(*tensors)",
        "view_as_real": "jnp.stack([self.real, self.imag], axis=-1)",
        "view_as_complex": "jax.lax.complex(self[..., 0], self[..., 1])",
        "rot90": "jnp.rot90(self, k, dims)",
        "diag_embed": "self[..., None] * jnp.eye(self.shape[-1])",
    }
)


@writes("cat", "concat", "concatenate")
def cat(call: Call):
    if len(call.tensors) == 1:
        call.args.get("dim")
        return call.tensors[0]
    return call.write("jnp.concatenate(tensors, axis=dim)", tensors=listed(call.tensors))


@writes("stack")
def stack(call: Call):
    return call.write("jnp.stack(tensors, axis=dim)", tensors=listed(call.tensors))


def listed(items: list) -> ast.List:
    return ast.List([expression(x) for x in items], ast.Load())


@writes("flatten")
def flatten(call: Call):
    rank = call.fake("self").ndim
    first, last = call.start_dim % rank, call.end_dim % rank
    sizes = [ast_size(call, i) for i in range(first)]
    rest = [ast_size(call, i) for i in range(last + 1, rank)]
    return call.write("self.reshape(*sizes)", sizes=[*sizes, -1, *rest])


def ast_size(call: Call, dim: int):
    """Returns the size of the input's dimension, as the block names it."""
    return call.size(call.fake("self").shape[dim])


@writes("unflatten")
def unflatten(call: Call):
    fake = call.fake("self")
    dim = call.dim % fake.ndim
    shape = [call.size(x) for x in fake.shape]
    return call.write("self.reshape(*shape)", shape=[*shape[:dim], *call.sizes, *shape[dim + 1 :]])


@writes("expand")
def expand(call: Call):
    """Writes nothing where broadcasting does it anyway."""
    return call.write("jnp.broadcast_to(self, shape)", shape=[call.size(x) for x in call.out.shape])


@writes("unsqueeze")
def unsqueeze(call: Call):
    return indexed(call.self, call.fake("self").ndim).new(call.dim % call.out.ndim)


@writes("squeeze")
def squeeze(call: Call):
    dims = call.args.get("dim")
    fake = call.fake("self")
    if dims is None:
        return call.write("self.squeeze()")
    dims = [d % fake.ndim for d in (dims if isinstance(dims, (list, tuple)) else [dims])]
    dims = [d for d in dims if fake.shape[d] == 1]
    if not dims:
        return call.self
    return call.write("self.squeeze(dims)", dims=dims[0] if len(dims) == 1 else dims)


@writes("slice", "narrow")
def slices(call: Call):
    rank = call.fake("self").ndim
    start, end = call.start, call.args.get("end", None)
    if "length" in call.args:
        end = call.write("start + length") if not isinstance(start, int) else start + call.length
    end = None if isinstance(end, int) and end >= 2**62 else end
    return indexed(call.self, rank).cut(
        call.dim % rank, start or None, end, call.args.get("step", 1)
    )


@writes("select")
def select(call: Call):
    rank = call.fake("self").ndim
    return indexed(call.self, rank).at(call.dim % rank, call.index)


@writes("split", "split_with_sizes", "chunk", "unsafe_chunk", "tensor_split")
def split(call: Call):
    """Writes equal pieces by their number, others by their ends."""
    count = call.fake("self").ndim
    order = [0, *range(2, count), 1] if call.last else [*range(count)]  # where torch has them
    sizes = [piece.shape[order[call.dim]] for piece in call.out]
    if all(s == sizes[0] for s in sizes) and isinstance(sizes[0], int):
        return call.write("jnp.split(self, count, axis=dim)", count=len(sizes))
    ends = [call.size(sum(sizes[: i + 1])) for i in range(len(sizes) - 1)]
    return call.write("jnp.split(self, ends, axis=dim)", ends=ends)


@writes("unbind")
def unbind(call: Call):
    return call.write("self" if call.dim == 0 else "jnp.moveaxis(self, dim, 0)")


@writes("repeat_interleave")
def repeat_interleave(call: Call):
    """Repeats by a number or by an array, whose sum has to be known."""
    if "self" not in call.args:
        raise NotImplementedError("repeat_interleave of counts alone")
    dim = call.args.get("dim")
    size = call.out.shape[0 if dim is None else dim]
    if isinstance(call.repeats, int) or not isinstance(call.fake("repeats"), torch.Tensor):
        return call.write("jnp.repeat(self, repeats, axis=dim)", dim=dim)
    text = "jnp.repeat(self, repeats, axis=dim, total_repeat_length=size)"
    return call.write(text, dim=dim, size=call.size(size))


@writes("pad", "constant_pad_nd")
def pad(call: Call):
    rank, pairs = call.fake("self").ndim, list(call.pad)
    widths = [(0, 0)] * (rank - len(pairs) // 2)
    widths += [(pairs[i], pairs[i + 1]) for i in range(len(pairs) - 2, -1, -2)]
    mode, value = call.args.get("mode", "constant"), call.args.get("value") or 0
    names = {"constant": None, "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if any(isinstance(x, int) and x < 0 for x in pairs):
        config = [(*x, 0) for x in widths]
        return call.write("jax.lax.pad(self, value, config)", value=float(value), config=config)
    if names[mode]:
        return call.write("jnp.pad(self, widths, mode=mode)", widths=widths, mode=names[mode])
    value_argument = ", constant_values=value" if value else ""
    return call.write(f"jnp.pad(self, widths{value_argument})", widths=widths, value=value)


@writes("diff")
def diff(call: Call):
    options = "".join(f", {x}={x}" for x in ("prepend", "append") if call.args.get(x) is not None)
    return call.write(f"jnp.diff(self, n, dim{options})")
