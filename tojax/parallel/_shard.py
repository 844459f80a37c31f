"""A model on a mesh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.sharding import Mesh, PartitionSpec

from tojax import calling, trees
from tojax.errors import WrongArguments
from tojax.model import Model
from tojax.parallel import plans
from tojax.parallel.plans import Plan


def shard(
    model: Model, mesh: Mesh, plan: Plan = "tp", *args: Any, rng: Any = None, **kwargs: Any
) -> Model:
    """The model with its weights divided over a mesh; XLA adds the communication.

    ``"tp"`` follows the plan that the model's class brings along (most of transformers' language
    models do); for others it is derived from the traced program: which product feeds which, heads
    of attentions included. ``"fsdp"`` divides the largest dimension of each parameter that the axis
    divides; ``"tp+fsdp"`` does both. On a mesh with an axis named "expert", stacked weights of
    experts are divided over it. ``jax.jit``, ``grad``, ``generate`` and ``tojax.train`` work
    as without a mesh, Auto or Explicit.

    Args:
      model: any Model.
      mesh: for "tp" an axis named "model", "tp" or "tensor", for "fsdp" one named "fsdp" or "data";
        a mesh of one axis may have any name.
      plan: "tp", "fsdp", "tp+fsdp", or rules {regular expression: PartitionSpec}: the first that is
        found in a name; what no rule names is replicated.
      *args, rng, **kwargs: an example call, where a plan has to be derived and the model was not
        called yet. Shapes and dtypes count.

    Returns:
      A Model on the mesh. Of its state, matrices are divided like params; all else is on every
      device.

    Raises:
      WrongArguments: no such plan, a mesh without its axis, rules that do not divide an array, or
        no example to derive from.

    Example:
      >>> import jax, numpy as np, torch
      >>> layers = torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)
      >>> model = tojax.from_torch(torch.nn.Sequential(*layers))
      >>> mesh = jax.make_mesh((jax.device_count(),), ("model",))
      >>> there = tojax.parallel.shard(model, mesh, "tp", np.ones((4, 8), np.float32))
      >>> {name: array.sharding.spec for name, array in there.params.items()}["0.weight"]
      P('model',)
    """
    found = specs(model, mesh, plan, args, kwargs, rng)
    params, state = (plans.sharded(held, mesh, found) for held in (model.params, model.state))
    return model.with_params(params).with_state(state)


def specs(
    model: Model,
    mesh: Mesh,
    plan: Plan,
    args: tuple = (),
    kwargs: dict | None = None,
    rng: Any = None,
) -> dict[str, PartitionSpec]:
    """A spec for each of the model's weights, see ``shard``."""
    held = weights(model)
    own, paths = {}, {}
    if hasattr(model.source, "own_plan"):
        own, paths = model.source.own_plan()
    return plans.specs(
        held,
        mesh,
        plan,
        paths={k: paths.get(k, [k]) for k in held},
        own=own,
        program=lambda: program(model, held, args, kwargs or {}, rng),
    )


def weights(model: Model) -> dict[str, Any]:
    """The params, and matrices in the state: weights that are not trained, as beside an adapter."""
    matrix = lambda x: x.ndim > 1 and jnp.issubdtype(x.dtype, jnp.inexact)
    held = lambda x: matrix(x) or isinstance(x, jax.ShapeDtypeStruct)  # not read yet
    return model.params | {k: x for k, x in model.state.items() if held(x)}


def program(
    model: Model, held: Mapping[str, Any], args: tuple, kwargs: dict, rng: Any
) -> ClosedJaxpr:
    """The model's jaxpr by its weights alone: for this call, else for the last one made."""
    if not (args or kwargs):
        args, kwargs, rng = example(model)
    leaves, structure = jax.tree.flatten((args, kwargs, rng))
    leaves = [blank(model.source.as_array(x)) for x in leaves]
    args, kwargs, rng = jax.tree.unflatten(structure, leaves)

    def run(*arrays):
        given = dict(zip(held, arrays))
        params = {k: given[k] for k in model.params}
        state = {k: given.get(k, x) for k, x in model.state.items()}
        out, _ = calling.apply(model.source, params, state, args, kwargs, rng)
        return [x for x in jax.tree.leaves(out) if trees.is_array(x)]

    return jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in held.values()))


def blank(x: Any) -> Any:
    """An array of which a call remembered the shape alone."""
    if not isinstance(x, jax.ShapeDtypeStruct):
        return x
    key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return jax.random.key(0) if key else np.zeros(x.shape, x.dtype)


def example(model: Model) -> tuple:
    """(args, kwargs, rng) of a call that was made, or that the source makes up."""
    made = calling.calls(model.source) or getattr(model.source, "examples", list)()
    if not made:
        raise WrongArguments(
            "there is no call to derive a plan from",
            where=model.source.name,
            why="which product feeds which is read from the traced program",
            do='give an example: shard(model, mesh, "tp", *args, **kwargs), or call model first',
        )
    return made[-1]
