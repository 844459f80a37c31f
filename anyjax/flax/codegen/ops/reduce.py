"""Sums, means, extremes, orders, Fourier transforms: along dimensions."""

import ast
import operator
from typing import Any

from torch import fx

from anyjax.flax.codegen.graph.functionalize import packet
from anyjax.flax.codegen.python.templates import DTYPES, Call, rows, writes

NAMES = {
    "sum": "sum",
    "mean": "mean",
    "prod": "prod",
    "amax": "max",
    "amin": "min",
    "any": "any",
    "all": "all",
    "argmax": "argmax",
    "argmin": "argmin",
}
rows(
    {
        "argsort": "jnp.argsort(self, axis=dim, descending=descending)",
        "logcumsumexp": "jax.lax.cumlogsumexp(self, dim)",
        "bincount": "jnp.bincount(self)",
    }
)


def along(call: Call) -> str:
    """Returns the arguments of a reduction: ``-1, keepdims=True``."""
    dim = call.args.get("dim")
    dim = [] if dim is None else list(dim) if isinstance(dim, (list, tuple)) else [dim]
    arguments = [str(dim[0]) if len(dim) == 1 else str(tuple(dim))] if dim else []
    return ", ".join(arguments + ["keepdims=True"] * bool(call.args.get("keepdim")))


@writes(*NAMES)
def reduce(call: Call):
    source_dtype, dtype = call.fake("self").dtype, call.args.get("dtype")
    cast = dtype is not None and DTYPES[dtype] != DTYPES[source_dtype]
    arguments = [x for x in (along(call), "dtype=dtype" * cast) if x]
    return call.write(f"self.{NAMES[call.name]}({', '.join(arguments)})")


@writes("cumsum", "cumprod")
def running(call: Call):
    source_dtype, target_dtype = call.fake("self").dtype, call.out.dtype
    call.args.get("dtype")  # the result has it
    same = DTYPES[source_dtype] == DTYPES[target_dtype]
    # JAX counts in these
    counts = DTYPES[target_dtype] == "jnp.int32" and not source_dtype.is_floating_point
    dtype_argument = "" if same or counts else ", dtype=dtype"
    return call.write(f"self.{call.name}(dim{dtype_argument})", dtype=target_dtype)


@writes("logsumexp")
def logsumexp(call: Call):
    return call.write(f"nnx.logsumexp(self, {along(call)})")


@writes("searchsorted")
def searchsorted(call: Call):
    if call.fake("sorted_sequence").ndim > 1:
        raise NotImplementedError("searchsorted in several sequences")
    right = call.args.get("right") or call.args.get("side") == "right"
    side = ", side='right'" if right else ""
    return call.write(f"jnp.searchsorted(sorted_sequence, self{side})")


@writes("bucketize")
def bucketize(call: Call):
    call.args.get("out_int32")  # JAX's are
    side = ", side='right'" if call.args.get("right") else ""
    return call.write(f"jnp.searchsorted(boundaries, self{side})")


@writes("histc")
def histc(call: Call):
    if call.min == call.max:
        raise NotImplementedError("histc over the range of its input")
    if (call.min, call.max) == (0, call.bins - 1) and _places(call.node.args[0]):
        return call.write("jnp.bincount(whole, length=bins)", whole=_whole(call))
    return call.write("jnp.histogram(self, bins, (min, max))[0]")


def _whole(call: Call) -> Any:
    """Returns the values as integers; floats that were made of integers are these."""
    match call.args["self"]:
        case ast.Call(func=ast.Attribute(attr="astype", value=inner)) if not (
            call.node.args[0].args[0].meta["val"].is_floating_point()
        ):
            return inner
    return call.write("self.astype(jnp.int32)")


def _places(node: fx.Node) -> bool:
    """Returns whether values are indices from topk, sort or argmax: integers from 0."""
    while packet(node) in ("aten.to", "aten.view", "aten.reshape", "aten.flatten", "aten.sort"):
        node = node.args[0]
        if node.target is operator.getitem and packet(node.args[0]) == "aten.sort":
            node = node.args[0]
    if node.target is operator.getitem:
        return packet(node.args[0]) in ("aten.topk", "aten.sort") and node.args[1] == 1
    return packet(node) in ("aten.argmax", "aten.argmin", "aten.argsort")


@writes("std", "var")
def deviation(call: Call):
    ddof = call.args.get("correction", call.args.get("unbiased", 1))
    ddof = 1 if ddof is None else int(ddof)
    arguments = [x for x in (along(call), f"ddof={ddof}" if ddof else "") if x]
    return call.write(f"self.{call.name}({', '.join(arguments)})")


@writes("minimum", "maximum")
def extreme_of_two(call: Call):
    return larger(call, call.name)


def larger(call: Call, name: str):
    """Returns the maximum or minimum; an array filled with one number is written as that."""
    operand, is_expression = call.node.args[1], not isinstance(call.other, ast.Name)
    same = all(call.fake("self").shape == x.shape and call.fake("self").dtype == x.dtype
               for x in (call.out, call.fake("other")))  # fmt: skip
    value = filled(operand) if is_expression and same else None
    result = call.other if value is None else value
    return call.write(f"jnp.{name}(self, found)", found=result)


def filled(node: fx.Node) -> Any:
    """Returns the number that an array is filled with; None if it is not one number."""
    place = {"aten.full": 1, "aten.full_like": 1, "aten.new_full": 2}.get(packet(node))
    if place is not None and isinstance(node.args[place], (int, float)):
        return node.args[place]
    return {"zeros": 0, "zeros_like": 0, "ones": 1, "ones_like": 1}.get(packet(node)[5:])


@writes("max", "min")
def extreme(call: Call):
    name = call.name
    if "other" in call.args:
        return larger(call, f"{name}imum")
    if "dim" not in call.args:
        return call.write(f"self.{name}()")
    axes = along(call)
    return call.write(f"(self.{name}({axes}), self.arg{name}({axes}))")


@writes("softmax", "log_softmax", "_softmax", "_log_softmax")
def softmax(call: Call):
    name = call.name.strip("_")
    dtype = call.args.get("dtype")
    if dtype is not None and dtype != call.fake("self").dtype:
        return call.write(f"nnx.{name}(self.astype(dtype), axis=dim)")
    axis = ", axis=dim" * (call.dim not in (-1, call.out.ndim - 1))
    return call.write(f"nnx.{name}(self{axis})")


@writes("topk")
def topk(call: Call):
    rank = call.fake("self").ndim
    if call.dim % max(rank, 1) == rank - 1 and call.largest:
        return call.write("jax.lax.top_k(self, k)")
    raise NotImplementedError("topk along another dimension, or of the smallest")


@writes("sort")
def sort(call: Call):
    descending = ", descending=True" if call.args.get("descending") else ""
    if all(u.args[1] != 1 for u in call.node.users):
        return call.write(f"(jnp.sort(self, axis=dim{descending}),)")
    arguments = f"self, axis=dim{descending}"
    return call.write(f"(jnp.sort({arguments}), jnp.argsort({arguments}))")


@writes("cummax", "cummin")
def running_extreme(call: Call):
    if any(u.args[1] == 1 and u.users for u in call.node.users):
        raise NotImplementedError("places of running extremes")
    dim = call.dim % call.fake("self").ndim
    return call.write(f"(jax.lax.{call.name}(self, dim),)", dim=dim)


@writes("norm", "linalg_vector_norm", "linalg_norm")
def norm(call: Call):
    """Writes a norm; JAX takes two dimensions for those of a matrix, torch only in
    ``linalg_norm``.
    """
    order = call.args.get("ord", call.args.get("p", 2))
    dim = call.args.get("dim")
    if order not in (2, None):
        count = call.fake("self").ndim if dim is None else 1 if isinstance(dim, int) else len(dim)
        if count != 1:
            raise NotImplementedError(f"the norm of order {order} over several dimensions")
    axes = along(call)
    dim = ", axis=" + axes if axes and not axes.startswith("keep") else ", " * bool(axes) + axes
    shown = f", ord={order!r}" if order not in (2, None) else ""
    return call.write(f"jnp.linalg.norm(self{shown}{dim})")


# Fourier transforms, which JAX has under torch's names.
ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY = ["fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"]


@writes(*(f"fft_{name}" for name in ONE + MANY))
def transform(call: Call):
    name = call.name.removeprefix("fft_")
    size, dim = ("n", "dim") if name in ONE else ("s", "dim")
    arguments = ["self"] + [f"{size}={size}"] * (call.args.get(size) is not None)
    if call.args.get(dim) not in (None, -1, [-2, -1] if name.endswith("2") else None):
        arguments.append("axis=dim" if name in ONE else "axes=dim")
    arguments += ["norm=norm"] * (call.args.get("norm") not in (None, "backward"))
    return call.write(f"jnp.fft.{name}({', '.join(arguments)})")


@writes("fft_fftshift", "fft_ifftshift")
def shifted(call: Call):
    name = call.name.removeprefix("fft_")
    return call.write(f"jnp.fft.{name}(self{', axes=dim' * (call.args.get('dim') is not None)})")
