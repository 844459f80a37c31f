"""``If``: one of two graphs, by a value that is known or that the program computes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.errors import DataDependent
from anyjax.onnx.core.nodes import Node
from anyjax.onnx.core.running import handles
from anyjax.stablehlo.core.static_values import as_jax, is_known
from anyjax.typing import PyTree


def arrays(values: PyTree) -> Any:
    """Returns values as JAX carries them out of a graph."""
    return jax.tree.map(lambda x: jnp.asarray(as_jax(x)), values)


def is_traced(value: object) -> bool:
    """Returns whether only the compiled program knows a value."""
    return isinstance(value, jax.core.Tracer)


@handles("If")
def if_(run, node, inputs):
    (cond,) = inputs
    graphs = node.attributes["then_branch"], node.attributes["else_branch"]
    key = run.branch_key(node)
    if is_known(cond) or not is_traced(cond):
        return run.nested(graphs[0] if cond.item() else graphs[1], [], key)
    branches = [lambda graph=graph: arrays(run.nested(graph, [], key)) for graph in graphs]
    try:
        shapes = [jax.eval_shape(branch) for branch in branches]
    except (TypeError, ValueError) as error:
        reason = f"one of them fails: {str(error).splitlines()[0]}"
        raise _undecided(node, cond, reason) from error
    if shapes[0] != shapes[1]:
        reason = f"one gives {_listed(shapes[0])}, the other {_listed(shapes[1])}"
        raise _undecided(node, cond, reason)
    return lax.cond(cond.reshape(()), *branches)


def _undecided(node: Node, cond: object, reason: str) -> DataDependent:
    error = DataDependent(
        "the branches of an If cannot be one program",
        where=node.place(),
        why=f"{reason}, and JAX compiles both before the condition is computed",
        do="pass what decides it as a numpy array that no transformation traces",
    )
    error.value = cond
    return error


def _listed(shapes: PyTree) -> str:
    return ", ".join(f"{x.dtype}{list(x.shape)}" for x in jax.tree.leaves(shapes)) or "none"
