"""``tf.custom_gradient``, ``tf.recompute_grad`` and overridden gradients as ``jax.custom_vjp``.

TensorFlow passes results and arguments of such a function through one IdentityN, whose registered
gradient computes the gradients of the arguments, and none for the results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from anyjax.stablehlo.core.static_values import as_jax, is_known
from anyjax.tensorflow.core.running import Running
from anyjax.tensorflow.state.variables import Handle


@dataclass(eq=False)
class Gradient:
    """A registered gradient: its graph takes the cotangents and then the captured values.

    ``places`` has for each of its outputs the input of the node that it belongs to. ``captured``
    has pairs: ("constant", value or Handle), ("edge", place among the node's further inputs), ("own
    output", place). ``input_count`` counts the inputs of the node without the further ones.
    """

    places: list[int]
    input_count: int
    captured: list[tuple[str, Any]] = field(default_factory=list)
    read: Callable[[], tuple[Any, Any]] | None = None  # its graph and the functions that it calls
    error: Exception | None = None  # why TensorFlow has none after all

    @functools.cached_property
    def graph(self) -> tuple[Any, Any]:
        """Its graph and the library of that.

        Raises:
          Exception: the one that TensorFlow raised for this gradient.
        """
        if self.read is None:
            raise self.error or AssertionError
        return self.read()


def with_gradient(
    run: Running, gradient: Gradient, inputs: Sequence[Any], compute: Callable[..., tuple]
) -> tuple:
    """Computes a node by ``compute``, differentiated by its own gradient."""
    operands, further = inputs[: gradient.input_count], inputs[gradient.input_count :]
    values = [x if isinstance(x, Handle) else jnp.asarray(as_jax(x)) for x in operands]
    fixed = [_fixed(kind, what, further) for kind, what in gradient.captured]
    handles = [x for x in fixed if isinstance(x, Handle)]
    variables = [run.variables[h] for h in handles]

    @jax.custom_vjp
    def through(values, further, variables):
        return list(compute(*values))

    def forward(values, further, variables):
        out = list(compute(*values))
        return out, (values, further, variables, out)

    def backward(residuals, cotangents):
        values, further, variables, out = residuals
        graph, library = gradient.graph
        inner = run.nested(None, library)
        inner.variables.update(zip(handles, variables))
        inner.initial = dict(inner.variables)
        captured = [
            further[what] if kind == "edge" else out[what] if kind == "own output" else what
            for kind, what in gradient.captured
        ]
        captured = [f if f is not None else x for f, x in zip(fixed, captured)]
        dense = [c if _smooth(x) else jnp.zeros_like(x) for c, x in zip(cotangents, out)]
        outputs = inner.graph(graph, [*dense, *captured])
        grads: list[Any] = [None] * len(values)  # not zeros: 0 times infinity is NaN
        for place, value in zip(gradient.places, outputs):
            if _smooth(values[place]):
                grads[place] = jnp.asarray(as_jax(value)).astype(values[place].dtype)
        return grads, None, None

    through.defvjp(forward, backward)
    # Inputs without a gradient in TensorFlow get none here, not zeros: 0 times infinity is NaN.
    stopped = lambda x: x if isinstance(x, Handle) else jax.lax.stop_gradient(x)
    values = [x if i in gradient.places else stopped(x) for i, x in enumerate(values)]
    # Captured values get no cotangents, but second derivatives go through them.
    arrays = [None if isinstance(x, Handle) or is_known(x) else x for x in further]
    return tuple(through(values, arrays, variables))


def _fixed(kind: str, what: Any, further: Sequence[Any]) -> Any:
    """Returns a captured value that is known while tracing: a variable's handle, a known array."""
    value = what if kind == "constant" else further[what] if kind == "edge" else None
    return value if isinstance(value, Handle) or is_known(value) else None


def _smooth(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jnp.inexact)
