"""Activations that a module spells out, recognised by their values: ``nnx.gelu`` and others."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tojax.flax.codegen import ops  # noqa: F401  (ops fills the table)
from tojax.flax.codegen.graph.submodule_tree import Block
from tojax.flax.codegen.python.templates import same_layout

KNOWN = {
    "nnx.gelu(x)": lambda x: F.gelu(x, approximate="tanh"),
    "nnx.gelu(x, approximate=False)": F.gelu,
    "nnx.silu(x)": F.silu,
    "nnx.softplus(x)": F.softplus,
    "x * jnp.tanh(nnx.softplus(x))": F.mish,
    "nnx.relu(x) ** 2": lambda x: F.relu(x) ** 2,
    "x * nnx.sigmoid(1.702 * x)": lambda x: x * torch.sigmoid(1.702 * x),
}


def activation(block: Block) -> str | None:
    """Returns the activation, in terms of ``x``, that a module of elementwise operators computes.

    It is compared in double precision at some thousand places from -30 to 30.
    """
    names = {str(n.target).split(".")[1].strip("_") for n in block.nodes() if "." in str(n.target)}
    is_simple = len(block.inputs) == len(block.outputs) == 1 and len(block.items) > 1
    has_parameters = next(block.module.parameters(), None) is not None
    if not is_simple or not names <= same_layout or has_parameters:
        return None
    x = torch.cat([torch.linspace(-4, 4, 4001), torch.linspace(-30, 30, 601)]).double()
    try:
        with torch.no_grad():
            values = block.module(x)
    except Exception:  # it wants another kind of input, so it is none of these
        return None
    if not isinstance(values, torch.Tensor) or values.shape != x.shape:
        return None
    matches = lambda y: torch.allclose(values.double(), y, rtol=1e-12, atol=1e-13)
    return next((text for text, function in KNOWN.items() if matches(function(x))), None)
