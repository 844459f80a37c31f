"""Calls with arrays on a mesh of explicit axes, where JAX asks each operator for its sharding.

A model's operators say none. So inside of the call all axes are automatic, and XLA decides; what
comes out has explicit shardings again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, reshard, use_abstract_mesh

from anyjax.typing import PyTree


def call_on_mesh(
    source: Callable,
    params: PyTree,
    state: PyTree,
    args: PyTree,
    kwargs: object,
    rng: jax.Array | int | None,
) -> Any:
    """``source(params, state, args, kwargs, rng)``, on whatever mesh.

    Outputs keep the sharding of the inputs' first axis, where theirs is as long, and of their first
    two (rows and positions), where both are; written state is placed as it was.

    Example:
      >>> mesh = jax.make_mesh((jax.device_count(),), ("data",))  # its axis is explicit
      >>> x = jax.device_put(jax.numpy.ones((8, 2)), NamedSharding(mesh, PartitionSpec("data")))
      >>> double = lambda params, state, args, kwargs, rng: (2 * args[0], state)
      >>> jax.typeof(call_on_mesh(double, {}, {}, (x,), {}, None)[0]).sharding.spec
      P('data', None)
    """
    arguments = params, state, args, kwargs, rng
    mesh = next((m for m in map(_mesh, jax.tree.leaves(arguments)) if m is not None), None)
    if mesh is None:
        return source(*arguments)
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(arguments)):
        axes = dict.fromkeys(mesh.axis_names, AxisType.Auto)
        free = lambda x: x if _mesh(x) is None else reshard(x, PartitionSpec())
        with use_abstract_mesh(mesh.update_axis_types(axes)):
            out, written = source(*jax.tree.map(free, arguments))
    else:  # each operator runs on its own
        mesh = next(x.sharding.mesh for x in jax.tree.leaves(arguments) if _mesh(x) is not None)
        with without_explicit_axes(arguments) as free_arguments:
            out, written = source(*free_arguments)
    divided = [x for x in jax.tree.leaves((args, kwargs)) if _batched(x)]
    batches = {x.shape[:n]: _spec(x)[:n] for n in (1, 2) for x in divided if x.ndim >= n}

    def place(x: object, spec: PartitionSpec | None = None) -> Any:
        if not isinstance(x, jax.Array):
            return x
        if spec is None:
            spec = PartitionSpec(*batches.get(x.shape[:2], batches.get(x.shape[:1], ())))
        put = reshard if isinstance(x, jax.core.Tracer) else jax.device_put
        return put(x, NamedSharding(mesh, spec))

    for name, x in written.items():
        written[name] = place(x, _spec(state[name]) if name in state else None)
    if getattr(written, "holds", None) is not None:
        written.holds = place(written.holds)
    return jax.tree.map(place, out), written


@contextlib.contextmanager
def without_explicit_axes(tree: PyTree) -> Iterator[Any]:
    """Yields the arrays of a tree on the same mesh with automatic axes, for programs that run
    outside of the user's own; nothing is copied.
    """
    shardings = [x.sharding for x in jax.tree.leaves(tree) if _mesh(x) is not None]
    if not shardings:
        yield tree
        return
    free = automatic(shardings[0].mesh)
    on = lambda x: (
        x if _mesh(x) is None else jax.device_put(x, NamedSharding(free, x.sharding.spec))
    )
    with jax.set_mesh(free):
        yield jax.tree.map(on, tree)


def automatic(mesh: Mesh) -> Mesh:
    """Returns the same devices, with axes that XLA decides about."""
    axes = (AxisType.Auto,) * len(mesh.axis_names)
    return Mesh(mesh.devices, mesh.axis_names, axis_types=axes)


def _mesh(x: object) -> Any:
    """Returns the mesh of an array, if one of its axes is explicit."""
    if not isinstance(x, jax.Array):
        return None
    mesh = jax.typeof(x).sharding.mesh
    return mesh if mesh.explicit_axes else None


def _spec(x: object) -> PartitionSpec:
    return jax.typeof(x).sharding.spec if isinstance(x, jax.Array) else PartitionSpec()


def _batched(x: object) -> bool:
    return _mesh(x) is not None and any(_spec(x)[:2])
