"""Graphs of AOTAutograd, run operator by operator over the tensors of a trace."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

from anyjax.torch.core import diagnostics, strides
from anyjax.torch.core.lifting import array_of, lift
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.engine.trace import Trace

aten = torch.ops.aten

# What keeps the state of the random generator, for code that the backward pass runs again.
SAVES_STATE, WITH_STATE = "run_and_save_rng_state", "run_with_rng_state"
# Where the factors are among the results of what the backward pass solves with again.
FACTORS = {aten._linalg_det.default: 1, aten._linalg_slogdet.default: 2}
TRANSPOSES = {aten.t.default, aten.permute.default, aten.transpose.int}


class Interpreter(torch.fx.Interpreter):
    """Runs a graph; random operators draw from the keys of the trace."""

    def __init__(self, module: torch.fx.GraphModule, trace: Trace):
        super().__init__(module)
        self.extra_traceback = False  # of torch's, below our errors, which say where they came from
        self.trace = trace
        self.node: Any = None

    def run_node(self, n: torch.fx.Node) -> Any:
        """Runs one operator; errors name the line of the user's code that it came from."""
        self.node = n
        self.trace.place = lambda: place_of(n)
        return super().run_node(n)

    def call_function(self, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Calls an operator; the state of a generator is a key."""
        keys, name = self.trace.keys, getattr(target, "__name__", "")
        if name == SAVES_STATE:
            op, *operands = args
            key = keys.draw(op)
            with keys.of(key):
                return self._state(key), op(*operands, **kwargs)
        if name == WITH_STATE:
            state, op, *operands = args
            with keys.of(to_key(array_of(state))):
                return op(*operands, **kwargs)
        if name == "with_effects":  # the graph has its order, so the token is nothing
            _, op, *operands = args
            out = super().call_function(op, tuple(operands), kwargs)
            return (torch.zeros(0), *(out if isinstance(out, tuple) else (out,)))
        if target is aten.view.default:
            target = aten.reshape.default  # no strides of ours forbid a view
        out = super().call_function(target, args, kwargs)
        if target in FACTORS:
            return self._with_factors(FACTORS[target], args[0], out)
        return out

    def _state(self, key: jax.Array) -> torch.Tensor:
        """Returns a key as the state of a generator, as long as one is in the graph."""
        state = to_bytes(key)
        first = next((user for user in self.node.users if user.args[1] == 0), self.node)
        length = first.meta["val"].numel() if "val" in first.meta else 0
        rest = length - state.size if isinstance(length, int) else 0
        return lift(JaxTensor(jnp.pad(state, (0, max(rest, 0))), torch.uint8))

    def _with_factors(self, place: int, matrix: torch.Tensor, out: tuple) -> tuple:
        """Returns results with the factors that torch has, which the backward pass solves with."""
        is_contiguous = self.node.args[0].meta["val"].is_contiguous()
        factors = strides.lu_factors(matrix, is_contiguous)
        return (*out[:place], *factors, *out[place + 2 :])


def to_bytes(key: jax.Array) -> jax.Array:
    """Returns a key as bytes."""
    return lax.bitcast_convert_type(jax.random.key_data(key), jnp.uint8).reshape(-1)


def to_key(state: jax.Array) -> jax.Array:
    """Returns the key whose bytes begin a state.

    Example:
      >>> key = jax.random.key(3)
      >>> bool(to_key(jnp.pad(to_bytes(key), (0, 5))) == key)
      True
    """
    words = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0))).size
    data = lax.bitcast_convert_type(state[: 4 * words].reshape(words, 4), jnp.uint32)
    return jax.random.wrap_key_data(data)


def place_of(node: torch.fx.Node) -> str:
    """Returns the line of the user's code that an operator of a graph came from."""
    frames = [x for x in (node.stack_trace or "").splitlines() if x.startswith("  File ")]
    if not frames:
        return f"{node.name} of a compiled graph"
    _, file, rest = frames[-1].split('"', 2)
    return f"{diagnostics.short(file)}:{rest.split('line ')[1].split(',')[0]}"


def is_random(module: torch.fx.GraphModule) -> bool:
    """Returns whether an operator of a graph, or of the graphs inside it, is random."""
    graphs = (x.graph for x in module.modules() if isinstance(x, torch.fx.GraphModule))
    targets = [node.target for graph in graphs for node in graph.nodes]
    seeded = torch.Tag.nondeterministic_seeded
    return any(
        getattr(x, "__name__", "") == SAVES_STATE or seeded in getattr(x, "tags", ())
        for x in targets
    )


def join_linear(graph: torch.fx.Graph) -> None:
    """Makes one operator again of a product with a transposed weight: XLA:CPU would make the
    transpose, which for one row takes longer than the product.
    """
    for node in graph.nodes:
        if node.target not in (aten.mm.default, aten.addmm.default) or node.kwargs:
            continue
        *bias, rows, transposed = node.args
        if transposed.target in TRANSPOSES and len(transposed.args[0].meta["val"].shape) == 2:
            node.target = aten.linear.default
            node.args = rows, transposed.args[0], *bias
    graph.eliminate_dead_code()
