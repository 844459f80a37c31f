"""Layers called as functions."""

import ast
from typing import Any

from anyjax.flax.codegen.ops.shape import listed
from anyjax.flax.codegen.ops.windows import spread
from anyjax.flax.codegen.python.templates import Call, fill, rows, swapped, table, writes

rows(
    {
        "matmul": "self @ other",
        "linalg_matmul": "self @ other",
        "bmm": "self @ mat2",
        "mv": "self @ vec",
        "vdot": "jnp.vdot(self, other)",
        "mm": "self @ mat2",
        "dot": "self @ tensor",
        "outer": "jnp.outer(self, vec2)",
        "einsum": "jnp.einsum(equation, *tensors)",
        "tensordot": "jnp.tensordot(self, other, (dims_self, dims_other))",
    }
)


table["transformers.grouped_mm_fallback"] = (
    "jax.lax.ragged_dot(input, weight, jnp.diff(offs, prepend=0))"
)


@writes("linear")
def linear(call: Call):
    return call.write("input @ weight.T" + (" + bias" if call.args.get("bias") is not None else ""))


@writes("scaled_dot_product_attention")
def attention(call: Call):
    """Writes attention, heads after positions as in JAX and Flax; ``dropout_p`` is the
    call of the layer that drops probabilities out.
    """
    if call.fake("query").ndim != 4 or call.fake("query").shape[-1] != call.fake("value").shape[-1]:
        return by_hand(call)
    arguments = ["query", "key", "value"]
    if call.args.get("attn_mask") is not None:
        boolean = str(call.fake("attn_mask").dtype) == "torch.bool"
        arguments.append("mask=attn_mask" if boolean else "bias=attn_mask")
    if call.args.get("is_causal"):
        arguments.append("is_causal=True")
    if call.args.get("scale") is not None and not usual(call):
        arguments.append("scale=scale")
    moved = {name: swapped(call.args[name], 1, 2) for name in ("query", "key", "value")}
    call_expr: Any = call.write(f"jax.nn.dot_product_attention({', '.join(arguments)})", **moved)
    if drop := call.args.get("dropout_p"):
        call_expr.func = ast.Name("attention_with_dropout", ast.Load())
        call_expr.args.append(drop.func)
        call_expr.keywords += drop.keywords
    return swapped(call_expr, 1, 2)


def by_hand(call: Call):
    """Writes attention whose values are wider or narrower than its keys."""
    scale = call.args.get("scale")
    if scale is None:
        width = call.fake("query").shape[-1]
        symbolic = fill("width ** -0.5", {"width": call.size(width)})
        scale = width**-0.5 if isinstance(width, int) else symbolic
    scores = call.write("query @ key.mT * scale", scale=scale)
    if call.args.get("attn_mask") is not None:
        boolean = str(call.fake("attn_mask").dtype) == "torch.bool"
        text = "jnp.where(attn_mask, scores, -jnp.inf)" if boolean else "scores + attn_mask"
        scores = call.write(text, scores=scores)
    if call.args.get("is_causal"):
        text = "jnp.where(jnp.tri(rows, columns, dtype=bool), scores, -jnp.inf)"
        rows, columns = (call.size(call.fake(x).shape[-2]) for x in ("query", "key"))
        scores = call.write(text, scores=scores, rows=rows, columns=columns)
    weights = call.write("nnx.softmax(scores)", scores=scores)
    if drop := call.args.get("dropout_p"):
        weights = ast.Call(drop.func, [weights], drop.keywords)
    return call.write("found @ value", found=weights)


@writes("batch_norm")
def batch_norm(call: Call):
    """Writes it with the running statistics, or with the batch's own where the call says so."""
    if not call.training:
        return scaled(call, "(input - running_mean) * jax.lax.rsqrt(running_var + eps)")
    if call.args.get("running_mean") is not None:
        raise NotImplementedError("batch_norm in training mode outside of its module")
    axes = tuple(range(call.out.ndim - 1))
    text = "jax.nn.standardize(input, axis=axes, epsilon=eps)"
    return scaled(call, text, axes=axes if len(axes) > 1 else axes[0])


def scaled(call: Call, template: str, **values: object):
    """Returns the template times the weight, plus the bias, where there are these."""
    for sign, name in (("*", "weight"), ("+", "bias")):
        template += f" {sign} {name}" * (call.args.get(name) is not None)
    return call.write(template, **values)


def usual(call: Call) -> bool:
    """Returns whether the scale is JAX's default."""
    width = call.fake("query").shape[-1]
    return isinstance(width, int) and abs(call.scale - width**-0.5) < 1e-12


@writes("conv1d", "conv2d", "conv3d")
def conv(call: Call):
    padding = call.padding
    pads = padding.upper() if isinstance(padding, str) else pairs(spread(call, "padding", [0]))
    return convolution(call, "weight", "strides", "pads", pads=pads)


@writes("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(call: Call):
    """Writes a convolution of the dilated input by each group's flipped kernel."""
    sizes = (spread(call, name, [0]) for name in ("dilation", "padding", "output_padding"))
    windows = zip(*sizes, call.fake("weight").shape[2:])
    pads = [(d * (k - 1) - p, d * (k - 1) - p + o) for d, p, o, k in windows]
    terms = ("kernel", "ones", "pads", "lhs_dilation=strides")
    ones = (1,) * (call.out.ndim - 2)
    return convolution(call, *terms, kernel=turned(call), ones=ones, pads=listed(pads))


def convolution(call: Call, *terms: str, **values: object):
    """Returns a convolution of the input, which has its channels last."""
    space, dilation = "DHW"[2 - call.out.ndim :], spread(call, "dilation", [1])
    arguments = ["input", *terms]
    arguments += ["rhs_dilation=dilation"] * (set(dilation) != {1})
    arguments += ["feature_group_count=groups"] * (call.groups != 1)
    arguments.append(f"dimension_numbers=('N{space}C', 'OI{space}', 'N{space}C')")
    bias = " + bias" if call.args.get("bias") is not None else ""
    text = f"jax.lax.conv_general_dilated({', '.join(arguments)}){bias}"
    return call.write(text, strides=spread(call, "stride", [1]), dilation=dilation, **values)


def turned(call: Call) -> ast.expr:
    """Returns the kernel of a transposed convolution as that of a convolution."""
    inputs, outputs, *window = (int(x) for x in call.fake("weight").shape)
    groups = call.groups
    split = [groups, inputs // groups, outputs, *window]
    joined = [groups * outputs, inputs // groups, *window]
    grouped = "weight.reshape(*split).swapaxes(1, 2).reshape(*joined)"
    kernel = grouped if groups > 1 else "weight.swapaxes(0, 1)"
    axes = tuple(range(2, len(window) + 2))
    return call.write(f"jnp.flip({kernel}, axes)", split=split, joined=joined, axes=axes)


def pairs(padding) -> ast.expr:
    return listed([(p, p) for p in padding])


@writes("layer_norm")
def layer_norm(call: Call):
    rank = len(call.normalized_shape)
    axes = -1 if rank == 1 else tuple(range(-rank, 0))
    return scaled(call, "jax.nn.standardize(input, axis=axes, epsilon=eps)", axes=axes)


@writes("rms_norm")
def rms_norm(call: Call):
    eps = call.args.get("eps") or 1.1920929e-07
    text = "input * jax.lax.rsqrt(jnp.square(input).mean(-1, keepdims=True) + eps)"
    return scaled(call, text, eps=eps)


@writes("normalize")
def normalize(call: Call):
    return call.write("self / jnp.maximum(jnp.linalg.norm(self, axis=dim, keepdims=True), eps)")


@writes("addmm", "baddbmm")
def product_added(call: Call):
    first, second = ("mat1", "mat2") if "mat1" in call.args else ("batch1", "batch2")
    weight = {name: "" if call.args[name] == 1 else f"{name} * " for name in ("beta", "alpha")}
    added = "" if call.beta == 0 else f"{weight['beta']}self + "
    product = f"{weight['alpha']}({first} @ {second})" if weight["alpha"] else f"{first} @ {second}"
    return call.write(added + product)


@writes("group_norm")
def group_norm(call: Call):
    """Writes it for channels last: those of a group are last, too."""
    sizes = [call.size(n) for n in (call.out.shape[0], *call.out.shape[2:])]
    axes = (*range(1, call.out.ndim - 1), -1)
    text = "jax.nn.standardize(input.reshape(*sizes, num_groups, -1), axis=axes, epsilon=eps)"
    return scaled(call, text + ".reshape(*sizes, -1)", sizes=sizes, axes=axes)


@writes("_weight_norm")
def weight_norm(call: Call):
    """Writes directions of length 1, each times its own length; -1 stands for a single one."""
    axes = tuple(i for i in range(call.fake("v").ndim) if i != call.dim)
    return call.write("v * (g / jnp.sqrt(jnp.square(v).sum(axes, keepdims=True)))", axes=axes)
